"""A stream as it was at a point, made from parts: by the protocol that whole backups use.

The last run before the point says which messages were removed by then, and has the configuration
and the consumers. Messages that were stored between that run and the point come from the parts of
later runs. So what the stream held at the point is there, except for messages that were stored and
removed between two runs; what was removed after the last run before the point is there again.

A consumer goes on after the last message up to which all was acknowledged: what it had out, or had
acknowledged out of order, is delivered again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.archive.entries import CONSUMER, MAGIC, STATE, put_content, put_end, put_entry
from slipstream.archive.s2 import S2Writer
from slipstream.backups.manifest import Generation, Manifest, Part, Run
from slipstream.backups.parts import Inside, RunState, fetch, merged, messages, unpacked_state
from slipstream.backups.stores import Store
from slipstream.client.jetstream.backup import CHUNK_BYTES, upload
from slipstream.client.jetstream.errors import BackupError
from slipstream.model.configurations import StreamConfig
from slipstream.model.infos import StreamInfo
from slipstream.model.times import Timestamp, datetime_ns, datetime_text
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

SIGN_OF_LIFE_SECONDS = 2.0  # between pieces while a part is fetched; servers wait 5
Progress = Callable[[int, int], None]


class Point(msgspec.Struct, kw_only=True, frozen=True):
    """Where a restore is to end: at the last run, or at a sequence or time before it."""

    sequence: int = 0
    time: datetime | None = None


class Restored(msgspec.Struct, kw_only=True, frozen=True):
    """What a restore has come to. `run` had the configuration; `has_consumers` is False where the
    point lies before it, so that no position of a consumer is known."""

    info: StreamInfo
    run: Run
    has_consumers: bool


class _Plan(msgspec.Struct, kw_only=True):
    """What of a generation is restored: what `run` had, and later messages up to `last_seq`."""

    generation: Generation
    run: Run
    last_seq: int
    is_before_run: bool


async def _plan(store: Store, manifest: Manifest, point: Point) -> _Plan:
    if point.time is not None and point.sequence:
        raise BackupError("restore: name a sequence or a time, not both")
    generation = manifest.generations[-1]
    if point.time is not None:
        return await _plan_for_time(store, manifest, datetime_ns(point.time))
    runs = generation.runs
    last = point.sequence or runs[-1].last_seq
    if last > runs[-1].last_seq:
        raise BackupError(
            f"restore to sequence {last}: the backup ends at sequence {runs[-1].last_seq}"
        )
    before = [run for run in runs if run.last_seq <= last]
    run = before[-1] if before else runs[0]
    return _Plan(generation=generation, run=run, last_seq=last, is_before_run=not before)


async def _plan_for_time(store: Store, manifest: Manifest, moment: int) -> _Plan:
    there = [one for one in manifest.generations if one.created <= moment]
    if not there:
        created = Timestamp.from_ns(manifest.generations[0].created)
        raise BackupError(
            f"restore to {Timestamp.from_ns(moment)}: the stream was created later, at {created}"
        )
    generation = there[-1]
    before = [run for run in generation.runs if run.time <= moment]
    run = before[-1] if before else generation.runs[0]
    last = run.last_seq if before else 0
    for part in generation.parts:
        if part.last_seq <= last:
            continue
        for record in messages(part, await fetch(store, part)):
            if record.seq <= last:
                continue
            if record.ts > moment:
                return _Plan(
                    generation=generation, run=run, last_seq=last, is_before_run=not before
                )
            last = record.seq
    return _Plan(generation=generation, run=run, last_seq=last, is_before_run=not before)


async def restore(
    store: Store,
    manifest: Manifest,
    js: "JetStream",
    point: Point,
    change: Callable[[StreamConfig], None] | None,
    progress: Progress | None,
) -> Restored:
    """See `Place.restore`."""
    plan = await _plan(store, manifest, point)
    state = unpacked_state(plan.run, await fetch(store, plan.run))
    config = StreamConfig.from_wire(state.config)
    if change is not None:
        change(config)
    archive = _Archive(store, plan, state, progress)
    step = min(CHUNK_BYTES, js.connection.server_info.max_payload)
    told = {"first_seq": state.first_seq, "last_seq": plan.last_seq}
    info = await upload(js, config.to_wire(), told, archive.chunks(step), 0, None)
    return Restored(info=info, run=plan.run, has_consumers=not plan.is_before_run)


class _Archive:
    """Writes the archive, as a server would have written it."""

    def __init__(
        self, store: Store, plan: _Plan, state: RunState, progress: Progress | None
    ) -> None:
        self._store = store
        self._plan = plan
        self._state = state
        self._progress = progress
        self._out = OutBuffer()
        self._frames = S2Writer()
        self._gone = Inside(merged([(0, state.first_seq - 1), *state.gaps]))

    async def chunks(self, step: int) -> AsyncIterator[bytes]:
        """The archive in chunks of up to `step` bytes. Raises `BackupError`, `CorruptionError`."""
        self._begin()
        rest = self._packed()
        parts = [one for one in self._plan.generation.parts if self._is_wanted(one)]
        total = sum(part.messages for part in parts)
        done = 0
        for part in parts:
            fetching = asyncio.create_task(self._piece(part))
            try:
                while not (await asyncio.wait({fetching}, timeout=SIGN_OF_LIFE_SECONDS))[0]:
                    yield rest[:1]  # or the server takes the client for gone
                    rest = rest[1:]
                rest += await fetching
            finally:
                fetching.cancel()
            for at in range(0, len(rest) - step, step):
                yield rest[at : at + step]
            rest = rest[(len(rest) - 1) // step * step :]  # something is left, to wait with
            done += part.messages
            if self._progress is not None:
                self._progress(done, total)
        put_end(self._out)
        rest += self._packed()
        for at in range(0, len(rest), step):
            yield rest[at : at + step]

    async def _piece(self, part: Part) -> bytes:
        return await asyncio.to_thread(self._take, part, await fetch(self._store, part))

    def _is_wanted(self, part: Part) -> bool:
        return part.last_seq >= self._state.first_seq and part.first_seq <= self._plan.last_seq

    def _begin(self) -> None:
        """The stream's state, and consumers."""
        plan, state = self._plan, self._state
        last_ts = state.last_ts if plan.last_seq >= state.last_seq else 0
        told: dict[str, Any] = {
            "messages": 0,
            "bytes": 0,
            "first_seq": state.first_seq,
            "first_ts": datetime_text(Timestamp.from_ns(0)),
            "last_seq": plan.last_seq,
            "last_ts": datetime_text(Timestamp.from_ns(last_ts)),
            "consumer_count": 0 if plan.is_before_run else len(state.consumers),
        }
        now = plan.run.time
        self._out.put(MAGIC)
        put_content(self._out, STATE, now, msgspec.json.encode(told))
        if not plan.is_before_run:
            for one in state.consumers:
                entry = {"config": one["config"], "state": _position(one)}
                name = CONSUMER + one["name"].encode()
                put_content(self._out, name, now, msgspec.json.encode(entry))

    def _take(self, part: Part, data: bytes) -> bytes:
        """What is wanted of a part, packed. Blocks."""
        out, last, gone = self._out, self._plan.last_seq, self._gone
        for record in messages(part, data):
            if record.seq > last:
                break
            if record.seq not in gone:
                at = record.header_start, record.body_start, record.end
                put_entry(out, record.subject, record.ts, record.seq, record.data, *at)
        return self._packed()

    def _packed(self) -> bytes:
        return self._frames.write(self._out.take())


def _position(consumer: dict[str, Any]) -> dict[str, Any]:
    """A position as archives have it: what was not acknowledged in order is still to come."""
    keeps_floor = consumer["config"].get("ack_policy", "none") != "none"
    place = consumer["ack_floor" if keeps_floor else "delivered"]
    return {"delivered": place, "ack_floor": place}
