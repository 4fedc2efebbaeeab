"""A place of incremental backups: what a run adds to it, and what goes from it again."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.archive.entries import put_entry
from slipstream.backups.manifest import Generation, Manifest, Part, Run, commit, digest, load, tidy
from slipstream.backups.parts import (
    PART_BYTES,
    Inside,
    Ranges,
    RunState,
    common,
    fetch,
    merged,
    messages,
    new_name,
    packed_part,
    packed_state,
    put,
    ranges_of,
    unpacked_state,
    without,
)
from slipstream.backups.reading import Reader
from slipstream.backups.restoring import Point, Restored, restore
from slipstream.backups.stores import UNFINISHED, Store, open_store
from slipstream.client.jetstream.errors import BackupError, MessageNotFoundError
from slipstream.errors import CorruptionError
from slipstream.model.configurations import SERVERS_METADATA, StreamConfig
from slipstream.model.infos import StreamInfo
from slipstream.model.times import Timestamp, stored_ns
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from datetime import datetime

    from slipstream.client.jetstream import JetStream

GAPS_MAX = 1_000_000  # removed messages between others that a run asks for: 8 MB of JSON
MERGED_PARTS_MIN = 8  # small parts beside each other that are worth being written as one
Progress = Callable[[int, int], None]  # messages done, messages in all


class Done(msgspec.Struct, kw_only=True, frozen=True):
    """What a run has come to."""

    run: Run
    written_bytes: int
    is_new_generation: bool  # the stream was made anew or set back since the last run


def open_place(place: "str | os.PathLike[str]") -> "Place":
    """The place of backups of one stream at a directory or URL (see `open_store`). Raises
    `ConfigError`."""
    return Place(open_store(place))


class Place:
    """Incremental backups of one stream in `store`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def manifest(self) -> Manifest:
        """What it holds. Raises `BackupError` where there is no backup, `CorruptionError`."""
        found = await load(self.store)
        if found is None:
            raise BackupError(f"{self.store} is no backup: it has no manifest")
        return found

    async def is_backup(self) -> bool:
        """Whether a run has ever written to it."""
        return await load(self.store) is not None

    # -- running ---------------------------------------------------------------------------------

    async def back_up(
        self,
        js: "JetStream",
        stream: str,
        *,
        consumers: bool = True,
        progress: Progress | None = None,
    ) -> Done:
        """Add what is new in `stream` since the last run, what has been removed from it, its
        configuration and, unless `consumers` is False, its consumers. What a run has begun counts
        once it is complete. Raises `BackupError`, also if another run was faster, `ApiError` and
        what the client raises."""
        manifest = await load(self.store) or Manifest(stream=stream)
        if manifest.stream != stream:
            raise BackupError(
                f"{self.store} has the backup of stream {manifest.stream}: name another place "
                f"for {stream}"
            )
        return await _Run(self.store, js, manifest, progress).run(consumers)

    # -- reading ---------------------------------------------------------------------------------

    async def restore(
        self,
        js: "JetStream",
        point: "Point | None" = None,
        *,
        change: Callable[[StreamConfig], None] | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Make the stream again as it was at `point`, by default at the last run. `change` may
        alter its configuration: another name, subjects, limits. `progress` is called with messages
        sent and an upper bound of all. Raises `BackupError`, `CorruptionError`, `ApiError`."""
        return await restore(
            self.store, await self.manifest(), js, point or Point(), change, progress
        )

    async def check(self, progress: Progress | None = None) -> Manifest:
        """Read all that it holds, and compare it with checksums and counts, without a server.
        Raises `BackupError`, `CorruptionError` with what is wrong."""
        manifest = await self.manifest()
        total = sum(part.messages for one in manifest.generations for part in one.parts)
        done = 0
        for generation in manifest.generations:
            states = [
                (run, unpacked_state(run, await fetch(self.store, run))) for run in generation.runs
            ]
            last = 0
            there: Ranges = []
            for part in generation.parts:
                if not last < part.first_seq <= part.last_seq:
                    raise CorruptionError(f"{part.name} overlaps with the part before it")
                last = part.last_seq
                data = await fetch(self.store, part)
                there += await asyncio.to_thread(_sequences, part, data)
                done += part.messages
                if progress is not None:
                    progress(done, total)
            for run, state in states:
                await asyncio.to_thread(_compare, run, state, there)
        return manifest

    # -- pruning ---------------------------------------------------------------------------------

    async def prune(self, *, keep: int = 0, before: "datetime | None" = None) -> int:
        """Drop runs, but the last `keep` (0: any number) and those since `before`, and the last one
        anyway; with them go messages that no run needs any more, and what broken runs have left
        behind. Small parts are written anew as one. Returns how many objects were deleted. Raises
        `BackupError`, `CorruptionError`."""
        manifest = await self.manifest()
        # What is there now and not in the manifest is of a broken run, or of one whose manifest
        # will be refused: it began from the manifest that this one replaces.
        folders = ("parts/", "runs/", UNFINISHED)
        there = {name for folder in folders for name in await self.store.names(folder)}
        runs = [run for generation in manifest.generations for run in generation.runs]
        bound = 0 if before is None else round(before.timestamp() * 1e9)
        if keep or before is not None:
            late = {run.name for run in runs if before is not None and run.time >= bound}
            kept = late | {run.name for run in runs[-max(keep, 1) :]}
        else:
            kept = {run.name for run in runs}
        for generation in manifest.generations:
            generation.runs = [run for run in generation.runs if run.name in kept]
        manifest.generations = [one for one in manifest.generations if one.runs]
        for generation in manifest.generations:
            await self._drop_parts(generation)
        await commit(self.store, manifest)
        gone = sorted(there - manifest.objects)
        await self.store.delete(gone)
        await tidy(self.store, manifest)
        return len(gone)

    async def _drop_parts(self, generation: Generation) -> None:
        """Drop parts that end before the first message of all runs, and merge small ones."""
        oldest = generation.runs[0]
        parts = [part for part in generation.parts if part.last_seq >= oldest.first_seq]
        state = unpacked_state(oldest, await fetch(self.store, oldest))
        generation.parts = []
        group: list[Part] = []
        for part in parts:
            if group and sum(one.content_bytes for one in group) + part.content_bytes > PART_BYTES:
                generation.parts += await self._merge(group, state)
                group = []
            group.append(part)
        generation.parts += await self._merge(group, state)

    async def _merge(self, group: list[Part], state: RunState) -> list[Part]:
        """A group of parts as one, if they are many; without what the oldest run misses already."""
        if len(group) < MERGED_PARTS_MIN:
            return group
        gone = Inside(merged([(0, state.first_seq - 1), *state.gaps]))
        out, count, last_ts, sequences = OutBuffer(), 0, 0, (group[0].first_seq, group[-1].last_seq)
        for part in group:
            for record in messages(part, await fetch(self.store, part)):
                if record.seq not in gone:
                    at = record.header_start, record.body_start, record.end
                    put_entry(out, record.subject, record.ts, record.seq, record.data, *at)
                    count += 1
            last_ts = part.last_ts
        made, data = await asyncio.to_thread(packed_part, out.take(), *sequences, last_ts, count)
        await put(self.store, made.name, data)
        return [made]


def _sequences(part: Part, data: bytes) -> Ranges:
    """Which sequences the messages of a part have. Blocks. Raises `CorruptionError`."""
    return ranges_of(record.seq for record in messages(part, data))


def _compare(run: Run, state: RunState, there: Ranges) -> None:
    """Whether the messages that the run has found are `there`. Blocks. Raises `CorruptionError`."""
    live = [(state.first_seq, state.last_seq)] if run.messages else []
    live = [left for one in live for left in without(one, state.gaps)]
    found = common(live, there)
    if run.knows_gaps and found != run.messages:
        raise CorruptionError(
            f"{run.name} had {run.messages} messages, and the parts have {found} of them"
        )


class _Run:
    """One run: reads from the server, and writes what counts once the manifest says so."""

    def __init__(
        self, store: Store, js: "JetStream", manifest: Manifest, progress: Progress | None
    ) -> None:
        self._store = store
        self._js = js
        self._manifest = manifest
        self._progress = progress
        self._written = 0

    async def run(self, with_consumers: bool) -> Done:
        """See `Place.back_up`."""
        js, name = self._js, self._manifest.stream
        # Consumers first: what is acknowledged meanwhile is delivered again after a restore.
        consumers: list[dict[str, Any]] = []
        if with_consumers:
            consumers = [_consumer(one.to_wire()) async for one in js.consumers(name)]
        info = await js.stream_info(name)
        knows_gaps = info.state.num_deleted <= GAPS_MAX
        if info.state.num_deleted and knows_gaps:
            info = await js.stream_info(name, deleted_details=True)
        generation = await self._generation(info)
        is_new = not generation.runs
        gaps = ranges_of(info.state.deleted) if knows_gaps else None
        reader = Reader(js, info, gaps)
        begin = generation.runs[-1].last_seq + 1 if generation.runs else 1
        begin = max(begin, info.state.first_seq)
        parts = await self._read(reader, begin, info)
        await self._check_same(info)
        known = gaps
        if known is None:
            known = await self._gaps_before(generation)
        state = RunState(
            config=_config(info.config.to_wire()),
            consumers=consumers,
            gaps=merged([*known, *reader.removed]),
            first_seq=info.state.first_seq,
            last_seq=info.state.last_seq,
            last_ts=_ns(info.state.last_ts),
        )
        added = sum(part.messages for part in parts)
        lost = sum(last - first + 1 for first, last in reader.removed) if knows_gaps else 0
        run = await self._put_state(state, info, added, info.state.messages - lost, knows_gaps)
        generation.parts += parts
        generation.runs.append(run)
        if is_new:
            self._manifest.generations.append(generation)
        await commit(self._store, self._manifest)
        await tidy(self._store, self._manifest)
        is_new = is_new and len(self._manifest.generations) > 1
        return Done(run=run, written_bytes=self._written, is_new_generation=is_new)

    async def _generation(self, info: StreamInfo) -> Generation:
        """The generation that the stream belongs to; one without runs if it is another stream."""
        created = _ns(info.created)
        new = Generation(created=created)
        if not self._manifest.generations:
            return new
        last = self._manifest.generations[-1]
        if last.created != created or info.state.last_seq < last.runs[-1].last_seq:
            return new
        if not last.parts:
            return last
        # Set back, and written to since: its last message is another one then.
        part = last.parts[-1]
        asked = {"seq": part.last_seq}
        try:
            found = await self._js.api.request(f"STREAM.MSG.GET.{info.config.name}", asked)
        except MessageNotFoundError:
            return last
        return last if stored_ns(found["message"]["time"].encode()) == part.last_ts else new

    async def _check_same(self, info: StreamInfo) -> None:
        """What was read has to be of one stream. Raises `BackupError`."""
        now = await self._js.stream_info(info.config.name)
        if now.created != info.created or now.state.last_seq < info.state.last_seq:
            raise BackupError(
                f"backup of stream {info.config.name}: it was made anew while it was read: run it "
                "again"
            )

    async def _read(self, reader: Reader, at: int, info: StreamInfo) -> list[Part]:
        """The parts with the messages from `at` on; one is stored while the next one is read."""
        parts: list[Part] = []
        first, last = at, info.state.last_seq
        out, count, last_seq, last_ts = OutBuffer(), 0, 0, 0
        total = 0 if not info.state.messages else max(last - at + 1 - _within(info, at), 0)
        done = 0
        storing: asyncio.Task[Part] | None = None
        try:
            while at <= last and info.state.messages:
                batch = await reader.read(at, last)
                out.put(batch.out.take())
                done += len(batch.sequences)
                count += len(batch.sequences)
                if batch.sequences:
                    last_seq, last_ts = batch.sequences[-1], batch.last_ts
                at = last + 1 if batch.is_exhausted else batch.last + 1
                if self._progress is not None:
                    self._progress(min(done, total), total)
                if count and (out.size >= PART_BYTES or at > last):
                    if storing is not None:
                        parts.append(await storing)
                    content = out.take()
                    put_one = self._put_part(content, first, last_seq, last_ts, count)
                    storing = asyncio.create_task(put_one)
                    first, count = last_seq + 1, 0
            if storing is not None:
                parts.append(await storing)
            return parts
        finally:
            await reader.close()
            if storing is not None and not storing.done():
                storing.cancel()
                await asyncio.gather(storing, return_exceptions=True)

    async def _put_part(
        self, content: bytes, first: int, last: int, last_ts: int, count: int
    ) -> Part:
        made: Part
        made, data = await asyncio.to_thread(packed_part, content, first, last, last_ts, count)
        await put(self._store, made.name, data)
        self._written += made.size
        return made

    async def _gaps_before(self, generation: Generation) -> Ranges:
        """What the last run knew of gaps, where there are too many to ask for."""
        if not generation.runs:
            return []
        run = generation.runs[-1]
        return unpacked_state(run, await fetch(self._store, run)).gaps

    async def _put_state(
        self, state: RunState, info: StreamInfo, added: int, count: int, knows_gaps: bool
    ) -> Run:
        data = await asyncio.to_thread(packed_state, state)
        run = Run(
            name=new_name("runs", state.first_seq, state.last_seq),
            size=len(data),
            sha256=digest(data),
            time=_ns(info.ts) or time.time_ns(),
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            messages=count,
            added=added,
            knows_gaps=knows_gaps,
        )
        await put(self._store, run.name, data)
        self._written += run.size
        return run


def _within(info: StreamInfo, at: int) -> int:
    """How many sequences from `at` on are known to have no message."""
    return sum(1 for seq in info.state.deleted if seq >= at)


def _ns(moment: "datetime | None") -> int:
    return moment.ns if isinstance(moment, Timestamp) else 0


def _config(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what the server of today has added to it."""
    metadata = {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if not key.startswith(SERVERS_METADATA)
    }
    config.pop("metadata", None)
    return config | ({"metadata": metadata} if metadata else {})


def _consumer(info: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a consumer."""
    place = {
        name: {key: (info.get(name) or {}).get(key, 0) for key in ("consumer_seq", "stream_seq")}
        for name in ("delivered", "ack_floor")
    }
    return {"name": info["name"], "config": _config(info["config"])} | place


async def stream_places(store: Store) -> list[str]:
    """The streams that have a place of their own below `store`. Raises `BackupError`."""
    found = {name.partition("/")[0] for name in await store.names("") if "/manifests/" in name}
    return sorted(found)
