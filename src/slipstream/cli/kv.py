"""`slipstream kv`: key-value buckets."""

from contextlib import suppress
from typing import Annotated, Any

import typer

from slipstream.cli.choose import choose_bucket
from slipstream.cli.config_options import pairs_of, words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.message.text import json_field, say_bytes
from slipstream.cli.output import done, note, print_json, properties, say, table
from slipstream.cli.prompts import Force, confirm, may_ask, read_stdin
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import (
    duration,
    one_of,
    show_duration,
    show_size,
    show_stamp,
    show_time,
    size,
)
from slipstream.client.jetstream.context import JetStream
from slipstream.client.kv import KeyValueConfig, KeyValueEntry, KeyValueStatus
from slipstream.client.kv.config import stream_config
from slipstream.client.kv.errors import KeyDeletedError
from slipstream.model.configurations import ExternalStream, Placement, Republish, StreamSource
from slipstream.model.policies import STORAGES

app = new_app("Key-value buckets.")

Bucket = Annotated[str, typer.Argument(metavar="BUCKET", help="The bucket")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key")]
Value = Annotated[
    str | None, typer.Argument(metavar="VALUE", help="The value; from stdin if there is none")
]
Revision = Annotated[int, typer.Argument(metavar="REVISION", help="The latest of the key")]


Tags = Annotated[
    list[str] | None, typer.Option("--tags", "--tag", help="Only on servers with this tag")
]
Cluster = Annotated[str, typer.Option("--cluster", help="Cluster to live in")]
Metadata = Annotated[list[str] | None, typer.Option("--metadata", help="key=value, more than once")]
RepublishSource = Annotated[
    str, typer.Option("--republish-source", help="Subjects to publish again")
]
RepublishDestination = Annotated[str, typer.Option("--republish-destination", help="Where to")]
RepublishHeaders = Annotated[bool, typer.Option("--republish-headers", help="Without the values")]
Sources = Annotated[list[str] | None, typer.Option("--source", help="Copy from this bucket too")]
StorageName = Annotated[
    Any, typer.Option("--storage", help="file or memory", metavar="TEXT",
                      parser=one_of(*STORAGES, f="file", m="memory"))
]  # fmt: skip


def _value_of(value: str | None) -> bytes:
    return read_stdin() if value is None else value.encode("utf-8", "surrogateescape")


def _show_status(status: KeyValueStatus, title: str) -> None:
    if wants_json():
        print_json(status.stream_info)
        return
    config = status.stream_info.config
    bound = show_size(config.max_bytes) if config.max_bytes > 0 else "unlimited"
    largest = show_size(config.max_msg_size) if config.max_msg_size > 0 else "unlimited"
    sections = [
        (
            "Configuration",
            [
                ("Bucket Name", status.bucket),
                ("History Kept", str(status.history)),
                ("Values Stored", f"{status.values:,}"),
                ("Compressed", str(status.is_compressed).lower()),
                ("Per-Key TTL Supported", str(config.allow_msg_ttl).lower()),
                ("Backing Store Kind", status.backing_store),
                ("Bucket Size", show_size(status.bytes)),
                ("Maximum Bucket Size", bound),
                ("Maximum Value Size", largest),
                ("Maximum Age", show_duration(status.ttl) if status.ttl else "unlimited"),
                ("JetStream Stream", status.stream_info.name),
                ("Storage", config.storage.title()),
            ],
        )
    ]
    properties(title, sections)


@command(app, "add")
async def add(
    bucket: Bucket,
    history: Annotated[int, typer.Option("--history", help="Values kept of each key")] = 1,
    ttl: Annotated[str, typer.Option("--ttl", help="How long values live")] = "",
    marker_ttl: Annotated[str, typer.Option("--marker-ttl", help="TTL of delete markers")] = "",
    storage: StorageName = "file",
    replicas: Annotated[int, typer.Option("--replicas", help="Copies in a cluster")] = 1,
    max_value_size: Annotated[str, typer.Option("--max-value-size", help="Like 1MB")] = "-1",
    max_bucket_size: Annotated[str, typer.Option("--max-bucket-size", help="Like 1GB")] = "-1",
    description: Annotated[str, typer.Option("--description", help="What it is for")] = "",
    compress: Annotated[bool, typer.Option("--compress/--no-compress", help="On disk")] = False,
    tags: Tags = None,
    cluster: Cluster = "",
    metadata: Metadata = None,
    republish_source: RepublishSource = "",
    republish_destination: RepublishDestination = "",
    republish_headers: RepublishHeaders = False,
    mirror: Annotated[str, typer.Option("--mirror", help="Be a copy of this bucket")] = "",
    mirror_domain: Annotated[
        str, typer.Option("--mirror-domain", help="The JetStream domain which has that")
    ] = "",
    sources: Sources = None,
) -> None:
    """Create a bucket."""
    config = KeyValueConfig(
        bucket=bucket,
        description=description,
        history=history,
        ttl=duration(ttl),
        limit_marker_ttl=duration(marker_ttl),
        max_value_size=size(max_value_size),
        max_bytes=size(max_bucket_size),
        storage=storage,
        num_replicas=replicas,
        compression=compress,
        placement=_placement(cluster, tags),
        metadata=pairs_of(metadata or []),
        republish=_republish(republish_source, republish_destination, republish_headers),
        mirror=_origin(mirror, mirror_domain) if mirror else None,
        sources=[_origin(name) for name in words_of(sources or [])],
    )
    async with jetstream() as js:
        made = await js.create_key_value(config)
        _show_status(await made.status(), f"Information for Key-Value Store Bucket {bucket}")


def _placement(cluster: str, tags: list[str] | None) -> Placement | None:
    found = words_of(tags or [])
    return Placement(cluster=cluster, tags=found) if cluster or found else None


def _republish(source: str, destination: str, headers: bool) -> Republish | None:
    if not destination:
        return None
    return Republish(src=source, dest=destination, headers_only=headers)


def _origin(bucket: str, domain: str = "") -> StreamSource:
    external = ExternalStream(api=f"$JS.{domain}.API") if domain else None
    return StreamSource(name=bucket, external=external)


@command(app, "edit")
async def edit(
    bucket: Bucket,
    history: Annotated[int | None, typer.Option("--history", help="Values kept of a key")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="How long values live")] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", help="In a cluster")] = None,
    max_value_size: Annotated[str | None, typer.Option("--max-value-size", help="1MB")] = None,
    max_bucket_size: Annotated[str | None, typer.Option("--max-bucket-size", help="1GB")] = None,
    description: Annotated[str | None, typer.Option("--description", help="For what")] = None,
    compress: Annotated[bool | None, typer.Option("--compress/--no-compress")] = None,
    marker_ttl: Annotated[
        str | None, typer.Option("--marker-ttl", help="TTL of delete markers")
    ] = None,
    tags: Tags = None,
    cluster: Cluster = "",
    metadata: Metadata = None,
    republish_source: RepublishSource = "",
    republish_destination: RepublishDestination = "",
    republish_headers: RepublishHeaders = False,
    no_mirror: Annotated[
        bool, typer.Option("--no-mirror", help="Be a bucket of its own from now on")
    ] = False,
    sources: Sources = None,
    force: Force = False,
) -> None:
    """Change a bucket; what is not said stays."""
    age = duration(ttl) if ttl is not None else None
    said: dict[str, object] = {
        "max_msgs_per_subject": history,
        "max_age": age,
        "num_replicas": replicas,
        "max_msg_size": size(max_value_size) if max_value_size is not None else None,
        "max_bytes": size(max_bucket_size) if max_bucket_size is not None else None,
        "description": description,
        "compression": None if compress is None else "s2" if compress else "none",
        "placement": _placement(cluster, tags),
        "republish": _republish(republish_source, republish_destination, republish_headers),
        "metadata": pairs_of(metadata) if metadata else None,
    }
    fields = {name: value for name, value in said.items() if value is not None}
    if marker_ttl is not None:
        fields["subject_delete_marker_ttl"] = duration(marker_ttl)
        fields["allow_msg_ttl"] = True
    made = stream_config(
        KeyValueConfig(bucket=bucket, sources=[_origin(one) for one in words_of(sources or [])])
    )
    if sources:
        fields["sources"] = made.sources
    if no_mirror:
        fields |= {"mirror": None, "mirror_direct": False, "subjects": made.subjects}
    if not fields:
        raise UsageError(f"kv edit: nothing of {bucket} would change; give an option")
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        if may_ask():  # without a terminal it is done at once, as the nats tool does it
            confirm(f"Really edit bucket {bucket}?", force)
        stream = await js.stream(kv.stream_name)
        window_ns = stream.config.to_wire().get("duplicate_window", 0)
        if age and window_ns > age * 1e9:  # it may not be longer than values live
            fields["duplicate_window"] = age
        await stream.update(stream.config.replace(**fields))
        _show_status(await kv.status(), f"Information for Key-Value Store Bucket {bucket}")


@command(app, "put")
async def put(bucket: Bucket, key: Key, value: Value = None) -> None:
    """Store a value."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        data = _value_of(value)
        revision = await kv.put(key, data)
        _written(key, data, revision)


def _written(key: str, data: bytes, revision: int) -> None:
    if wants_json():
        print_json({"key": key, "revision": revision})
    else:
        say(data.decode("utf-8", "replace"))


@command(app, "create")
async def create(
    bucket: Bucket,
    key: Key,
    value: Value = None,
    ttl: Annotated[str, typer.Option("--ttl", help="How long it lives")] = "",
) -> None:
    """Store a value if the key has none."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        data = _value_of(value)
        revision = await kv.create(key, data, ttl=duration(ttl) or None)
        _written(key, data, revision)


@command(app, "update")
async def update(bucket: Bucket, key: Key, value: Value = None, revision: Revision = 0) -> None:
    """Store a value if REVISION is the latest of the key."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        data = _value_of(value)
        new = await kv.update(key, data, revision)
        _written(key, data, new)


@command(app, "get")
async def get(
    bucket: Bucket,
    key: Key,
    revision: Annotated[int, typer.Option("--revision", help="Not the latest, but this")] = 0,
    raw: Annotated[bool, typer.Option("--raw", help="Only the value")] = False,
) -> None:
    """Show a value."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        entry = await kv.get(key, revision=revision or None)
    if wants_json():
        print_json(_json(entry))
        return
    if not raw:
        say(f"{bucket} > {key} revision: {entry.revision} created @ {show_time(entry.created)}\n")
    say_bytes(entry.data)


def _json(entry: KeyValueEntry) -> dict[str, object]:
    return {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "operation": entry.operation.name,
        "created": show_stamp(entry.created),
    } | json_field("value", entry.data)


@command(app, "del")
async def delete(
    bucket: Bucket,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Without one, the bucket")] = "",
    force: Force = False,
) -> None:
    """Delete a key (its history stays), or a whole bucket."""
    await _delete(bucket, key, force)


async def _delete(bucket: str, key: str, force: bool) -> None:
    async with jetstream() as js:
        if not key:
            await _remove_bucket(js, bucket, force)
            return
        kv = await js.key_value(bucket)
        if not force:
            await kv.get(key)
            confirm(f"Delete key {bucket} > {key}?", force)
        await kv.delete(key)
    done("", success=True)


async def _remove_bucket(js: JetStream, bucket: str, force: bool) -> None:
    if not force:
        await js.key_value(bucket)
        confirm(f"Delete bucket {bucket}?", force)
    await js.delete_key_value(bucket)
    done("", success=True)


@command(app, "purge")
async def purge(
    bucket: Bucket,
    key: Key,
    force: Force = False,
    ttl: Annotated[str, typer.Option("--ttl", help="How long the marker stays")] = "",
) -> None:
    """Delete a key with its history."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        if not force:
            with suppress(KeyDeletedError):  # its history may still be purged
                await kv.get(key)
            confirm(f"Purge key {bucket} > {key}?", force)
        await kv.purge(key, ttl=duration(ttl) or None)
    done("", success=True)


@command(app, "rm")
async def rm(
    bucket: Bucket,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Without one, the bucket")] = "",
    force: Force = False,
) -> None:
    """Remove a bucket with all its keys, or a key as `del` does."""
    await _delete(bucket, key, force)


@command(app, "revert")
async def revert(
    bucket: Bucket,
    key: Key,
    revision: Annotated[int, typer.Argument(metavar="REVISION", help="The one to go back to")],
    force: Force = False,
) -> None:
    """Store again the value that a key had, unless somebody changes it meanwhile."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        entries = await kv.history(key)
        old = await kv.get(key, revision=revision)
        if not force:
            note(f"Revision: {revision}\n\n{_text(old.data)}\n")
            confirm(f"Really revert to revision {revision}?", force)
        await kv.update(key, old.data, entries[-1].revision)
        entries = await kv.history(key)
    _show_history(bucket, key, entries)


@command(app, "history")
async def history(bucket: Bucket, key: Key) -> None:
    """Show the values that a key has had."""
    async with jetstream() as js:
        entries = await (await js.key_value(bucket)).history(key)
    _show_history(bucket, key, entries)


def _show_history(bucket: str, key: str, entries: list[KeyValueEntry]) -> None:
    if wants_json():
        print_json([_json(entry) for entry in entries])
        return
    rows = [
        (
            entry.key,
            str(entry.revision),
            entry.operation.name,
            show_time(entry.created),
            f"{len(entry.data):,}",
            entry.data.decode("utf-8", "replace")[:40],
        )
        for entry in entries
    ]
    title = f"History for {bucket} > {key}"
    table(title, ("Key", "Revision", "Op", "Created", "Length", "Value"), rows)


@command(app, "watch")
async def watch(
    bucket: Bucket,
    key: Annotated[str, typer.Argument(metavar="KEYS", help="A key or a pattern")] = ">",
    all_history: Annotated[bool, typer.Option("--history", help="With what was before")] = False,
    updates_only: Annotated[
        bool, typer.Option("--updates", "--updates-only", help="Only changes")
    ] = False,
    deletes: Annotated[
        bool, typer.Option("--deletes/--no-deletes", help="With what was deleted")
    ] = True,
    revision: Annotated[int, typer.Option("--revision", help="Begin with this one")] = 0,
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Show values as they change, until Ctrl-C."""
    shown = 0
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        changes = await kv.watch(
            key,
            include_history=all_history,
            updates_only=updates_only,
            ignore_deletes=not deletes,
            resume_from=revision,
        )
        async with changes:
            async for entry in changes:
                if entry is None:
                    continue
                if wants_json():
                    print_json(_json(entry))
                else:
                    text = entry.data.decode("utf-8", "replace")
                    say(
                        f"[{show_time(entry.created)}] {entry.operation.name} {bucket} > "
                        f"{entry.key}: {text}"
                    )
                shown += 1
                if count and shown >= count:
                    return


@command(app, "ls")
async def ls(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Without one: buckets")] = "",
    key: Annotated[str, typer.Argument(metavar="KEYS", help="Only these")] = ">",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More about each")] = False,
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names")] = False,
    display_value: Annotated[
        bool, typer.Option("--display-value", help="With the values, in the table of --verbose")
    ] = False,
) -> None:
    """List buckets, or the keys of one."""
    verbose = (verbose or display_value) and not names
    async with jetstream() as js:
        if not bucket:
            await _list_buckets([status async for status in js.key_values()], names)
            return
        kv = await js.key_value(bucket)
        keys = await kv.keys(key)
        entries = [await kv.get(one) for one in keys] if verbose else []
    if wants_json():
        print_json([_json(entry) for entry in entries] if verbose else keys)
    elif verbose and keys:
        columns = ("Key", "Created", "Delta", "Revision", "Value")
        rows = [
            (e.key, show_time(e.created), str(e.delta), str(e.revision), _text(e.data))
            for e in entries
        ]
        width = len(columns) if display_value else len(columns) - 1
        title = f"Contents for bucket '{bucket}'"
        table(title, columns[:width], [row[:width] for row in rows])
    else:
        say("\n".join(keys) or f"No keys found in bucket {bucket}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


async def _list_buckets(statuses: list[KeyValueStatus], names: bool) -> None:
    statuses.sort(key=lambda status: status.bucket)
    if names:
        found = [status.bucket for status in statuses]
        if wants_json():
            print_json(found)
        elif found:
            say("\n".join(found))
        return
    if wants_json():
        print_json([status.stream_info for status in statuses])
        return
    if not statuses:
        say("No Key-Value buckets found")
        return
    rows = [
        (
            status.bucket,
            status.stream_info.config.description,
            show_time(status.stream_info.created),
            show_size(status.bytes),
            f"{status.values:,}",
            show_time(status.stream_info.state.last_ts) if status.values else "never",
        )
        for status in statuses
    ]
    columns = ("Bucket", "Description", "Created", "Size", "Values", "Last Update")
    table("Key-Value Buckets", columns, rows)


@command(app, "info")
async def info(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="The bucket")] = "",
) -> None:
    """Show what a bucket is and holds."""
    async with jetstream() as js:
        bucket = await choose_bucket(js, bucket)
        status = await (await js.key_value(bucket)).status()
    _show_status(status, f"Information for Key-Value Store Bucket {bucket}")


@command(app, "compact")
async def compact(bucket: Bucket, force: Force = False) -> None:
    """Remove what is left of deleted keys."""
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        confirm(f"Remove all delete markers of {bucket}?", force)
        gone = await kv.purge_deletes(-1)
    done(f"{gone:,} deleted keys were removed", purged=gone)
