"""`slipstream object`: stores of large objects."""

import base64
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.choose import choose_store
from slipstream.cli.config_options import pairs_of, words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note, print_json, properties, say, table
from slipstream.cli.progress import bytes_bar
from slipstream.cli.prompts import Force, confirm, stdin_chunks
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import duration, one_of, show_duration, show_size, show_time, size
from slipstream.client.object_store import (
    ObjectInfo,
    ObjectStore,
    ObjectStoreConfig,
    ObjectStoreStatus,
)
from slipstream.client.object_store.errors import ObjectNotFoundError
from slipstream.errors import ConfigError
from slipstream.model.configurations import Placement
from slipstream.model.policies import STORAGES

app = new_app("Object stores.")

Bucket = Annotated[str, typer.Argument(metavar="BUCKET", help="The store")]
Name = Annotated[str, typer.Argument(metavar="OBJECT", help="The object")]
Tags = Annotated[
    list[str] | None, typer.Option("--tags", "--tag", help="Only on servers with this tag")
]
Cluster = Annotated[str, typer.Option("--cluster", help="Cluster to live in")]


@command(app, "add")
async def add(
    bucket: Bucket,
    ttl: Annotated[str, typer.Option("--ttl", help="How long objects live")] = "",
    storage: Annotated[
        Any,
        typer.Option(
            "--storage",
            help="file or memory",
            metavar="TEXT",
            parser=one_of(*STORAGES, f="file", m="memory"),
        ),
    ] = "file",
    replicas: Annotated[int, typer.Option("--replicas", help="Copies in a cluster")] = 1,
    max_bucket_size: Annotated[str, typer.Option("--max-bucket-size", help="Like 1GB")] = "-1",
    description: Annotated[str, typer.Option("--description", help="What it is for")] = "",
    compress: Annotated[bool, typer.Option("--compress/--no-compress", help="On disk")] = False,
    metadata: Annotated[list[str], typer.Option("--metadata", help="key=value")] = [],  # noqa: B006
    tags: Tags = None,
    cluster: Cluster = "",
) -> None:
    """Create a store."""
    config = ObjectStoreConfig(
        bucket=bucket,
        description=description,
        ttl=duration(ttl),
        storage=storage,
        num_replicas=replicas,
        max_bytes=size(max_bucket_size),
        compression=compress,
        metadata=pairs_of(metadata),
        placement=_placement(cluster, tags),
    )
    async with jetstream() as js:
        made = await js.create_object_store(config)
        _show_status(await made.status())


def _placement(cluster: str, tags: list[str] | None) -> Placement | None:
    found = words_of(tags or [])
    return Placement(cluster=cluster, tags=found) if cluster or found else None


@command(app, "edit")
async def edit(
    bucket: Bucket,
    ttl: Annotated[str | None, typer.Option("--ttl", help="How long objects live")] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", help="In a cluster")] = None,
    max_bucket_size: Annotated[str | None, typer.Option("--max-bucket-size", help="1GB")] = None,
    description: Annotated[str | None, typer.Option("--description", help="For what")] = None,
    compress: Annotated[bool | None, typer.Option("--compress/--no-compress")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", help="key=value, more than once")
    ] = None,
    tags: Tags = None,
    cluster: Cluster = "",
) -> None:
    """Change a store; what is not said stays."""
    said: dict[str, Any] = {
        "max_age": None if ttl is None else duration(ttl),
        "num_replicas": replicas,
        "max_bytes": None if max_bucket_size is None else size(max_bucket_size),
        "description": description,
        "compression": None if compress is None else "s2" if compress else "none",
        "metadata": pairs_of(metadata) if metadata else None,
        "placement": _placement(cluster, tags),
    }
    fields = {name: value for name, value in said.items() if value is not None}
    if not fields:
        raise UsageError(f"object edit: nothing of {bucket} would change; give an option")
    async with jetstream() as js:
        store = await js.object_store(bucket)
        stream = await js.stream((await store.status()).stream_info.name)
        await stream.update(stream.config.replace(**fields))
        _show_status(await store.status())


def _show_status(status: ObjectStoreStatus) -> None:
    if wants_json():
        print_json(status.stream_info)
        return
    pairs = [
        ("Bucket Name", status.bucket),
        ("Description", status.description),
        ("Size", show_size(status.size)),
        ("Maximum Age", show_duration(status.ttl) if status.ttl else "unlimited"),
        ("Sealed", str(status.is_sealed).lower()),
        ("Compressed", str(status.is_compressed).lower()),
        ("Storage", status.storage.title()),
        ("Replicas", str(status.replicas)),
        ("JetStream Stream", status.stream_info.name),
    ]
    pairs = [(label, value) for label, value in pairs if value]
    properties(f"Information for Object Store Bucket {status.bucket}", [("Configuration", pairs)])


@command(app, "put")
async def put(
    bucket: Bucket,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Without one, or -: stdin")] = "-",
    name: Annotated[str, typer.Option("--name", help="Not the file's name, but this")] = "",
    description: Annotated[str, typer.Option("--description", help="What it is")] = "",
    header: Annotated[list[str], typer.Option("--header", "-H", help="Name: value")] = [],  # noqa: B006
    metadata: Annotated[list[str], typer.Option("--metadata", help="key=value")] = [],  # noqa: B006
    chunk_size: Annotated[str, typer.Option("--chunk-size", help="Like 128KiB")] = "128KiB",
    force: Force = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="A bar")] = True,
) -> None:
    """Store a file."""
    if file == "-" and not name:
        raise typer.BadParameter("an object from stdin needs --name")
    path = Path(file)
    if file != "-" and not path.is_file():
        raise ConfigError(f"object put: there is no file {file}")
    name = name or file
    headers: dict[str, list[str]] = {}
    for one in header:
        key, _, value = one.partition(":")
        headers.setdefault(key.strip(), []).append(value.strip())
    async with jetstream() as js:
        store = await js.object_store(bucket)
        if not force and await _holds(store, name):
            confirm(f"Replace existing object {bucket} > {name}?", force)
        with bytes_bar("Storing", wanted=progress) as bar:
            total = path.stat().st_size if file != "-" else None
            task = bar.add_task("", total=total)
            info = await store.put(
                name,
                stdin_chunks() if file == "-" else path,
                description=description,
                headers=headers,
                metadata=pairs_of(metadata),
                chunk_size=size(chunk_size),
                progress=lambda done, _: bar.update(task, completed=done),
            )
    _show_info(info)


async def _holds(store: ObjectStore, name: str) -> bool:
    try:
        await store.info(name)
    except ObjectNotFoundError:
        return False
    return True


def _digest(text: str) -> str:
    """Of "SHA-256=<base64>" the words of the nats tool, which `sha256sum` writes too."""
    kind, mark, value = text.partition("=")
    return f"{kind} {base64.urlsafe_b64decode(value).hex()}" if mark else text


def _show_info(info: ObjectInfo) -> None:
    if wants_json():
        print_json(msgspec.to_builtins(info))
        return
    pairs = [
        ("Description", info.description),
        ("Size", show_size(info.size)),
        ("Modification Time", show_time(info.modified)),
        ("Chunks", f"{info.chunks:,}"),
        ("Digest", _digest(info.digest)),
        ("ID", info.nuid),
    ]
    if info.deleted:
        pairs.append(("Deleted", "true"))
    if info.link is not None:
        pairs.append(("Link", f"{info.link.bucket} > {info.link.name}".rstrip(" >")))
    pairs += [(f"Metadata {key}", value) for key, value in sorted(info.metadata.items())]
    pairs += [(f"Header {key}", ", ".join(values)) for key, values in sorted(info.headers.items())]
    pairs = [(label, value) for label, value in pairs if value]
    properties(f"Object information for {info.bucket} > {info.name}", [("", pairs)])


@command(app, "get")
async def get(
    bucket: Bucket,
    name: Name,
    output: Annotated[str, typer.Option("--output", "-O", help="File to write; - for stdout")] = "",
    force: Force = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="A bar")] = True,
) -> None:
    """Fetch an object into a file; it appears when it is whole and its digest is right."""
    async with jetstream() as js:
        store = await js.object_store(bucket)
        if output == "-":
            async with await store.open(name) as reader:
                async for chunk in reader:
                    sys.stdout.buffer.write(chunk)
            return
        target = Path(output or Path(name).name)
        if target.exists():
            confirm(f"Overwrite {target}?", force)
        with bytes_bar("Fetching", wanted=progress) as bar:
            task = bar.add_task("", total=None)
            info = await store.get_file(
                name,
                target,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    if wants_json():
        _show_info(info)
    else:
        note(f"Wrote: {show_size(info.size)} to {target}")


@command(app, "info")
async def info(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="The store")] = "",
    name: Annotated[str, typer.Argument(metavar="OBJECT", help="Without one: the store")] = "",
) -> None:
    """Show what describes a store or an object."""
    async with jetstream() as js:
        store = await js.object_store(await choose_store(js, bucket))
        if name:
            _show_info(await store.info(name))
        else:
            _show_status(await store.status())


@command(app, "ls")
async def ls(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Without one: stores")] = "",
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names")] = False,
) -> None:
    """List stores, or the objects of one."""
    async with jetstream() as js:
        if not bucket:
            _list_stores([status async for status in js.object_stores()], names)
            return
        found = await (await js.object_store(bucket)).list()
    if wants_json():
        print_json([msgspec.to_builtins(one) for one in found])
    elif names or not found:
        say("\n".join(one.name for one in found) or f"No entries found in {bucket}")
    else:
        rows = [(one.name, show_size(one.size), show_time(one.modified)) for one in found]
        table("Bucket Contents", ("Name", "Size", "Time"), rows)


def _list_stores(statuses: list[ObjectStoreStatus], names: bool) -> None:
    statuses.sort(key=lambda status: status.bucket)
    if wants_json():
        print_json([status.stream_info for status in statuses])
    elif names or not statuses:
        say("\n".join(status.bucket for status in statuses) or "No Object Store buckets found")
    else:
        rows = [
            (
                status.bucket,
                status.description,
                show_time(status.stream_info.created),
                show_size(status.size),
                show_time(status.stream_info.state.last_ts),
            )
            for status in statuses
        ]
        columns = ("Bucket", "Description", "Created", "Size", "Last Update")
        table("Object Store Buckets", columns, rows)


@command(app, "rm")
async def rm(
    bucket: Bucket,
    name: Annotated[str, typer.Argument(metavar="OBJECT", help="Without one: the store")] = "",
    force: Force = False,
) -> None:
    """Remove an object, or a whole store."""
    async with jetstream() as js:
        if name:
            store = await js.object_store(bucket)
            if not force:
                await store.info(name)
                confirm(f"Delete object {bucket} > {name}?", force)
            await store.delete(name)
        else:
            if not force:
                await js.object_store(bucket)
                confirm(f"Delete bucket {bucket} with all its objects?", force)
            await js.delete_object_store(bucket)
    done("", success=True)


@command(app, "watch")
async def watch(
    bucket: Bucket,
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Show objects as they come and go, until Ctrl-C."""
    shown = 0
    async with jetstream() as js:
        changes = await (await js.object_store(bucket)).watch()
        async with changes:
            async for one in changes:
                if one is None:
                    continue
                if wants_json():
                    print_json(msgspec.to_builtins(one))
                elif one.deleted:
                    say(f"[{show_time(one.modified)}] DEL {bucket} > {one.name}")
                else:
                    text = f"{show_size(one.size)} bytes in {one.chunks:,} chunks"
                    say(f"[{show_time(one.modified)}] PUT {bucket} > {one.name}: {text}")
                shown += 1
                if count and shown >= count:
                    return


@command(app, "seal")
async def seal(bucket: Bucket, force: Force = False) -> None:
    """Let nothing change in a store any more. There is no way back."""
    async with jetstream() as js:
        store = await js.object_store(bucket)
        confirm(
            f"Really seal Bucket {bucket}? Sealed buckets cannot be unsealed or modified.", force
        )
        await store.seal()
    done(f"Bucket {bucket} was sealed", success=True)
