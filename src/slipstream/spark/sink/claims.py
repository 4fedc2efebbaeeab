"""Rows that an earlier run has stored are divided among the tasks of the run that comes after it.

The tasks of both runs have the same rows together, but each may have others than before, and rows
may be equal: if one of two equal rows is stored and two tasks have one each, exactly one of them
has to leave its own out. So a task that meets a row which is stored claims it: on a subject of the
stream it says which of the stored rows it leaves out, on condition that it has read every claim
before. Each stored row is claimed once; a row for which none is free is published.

Stored rows are known by their place in the order of the stream, which is the same for all tasks. A
task that is tried again inherits the claims of its partition. Claims of other runs mean nothing.
What does not fit into one message is claimed with several.
"""

import asyncio
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.arrow.row_block import TO_SEND, RowBlock
from slipstream.client.jetstream.errors import MessageNotFoundError, WrongLastSequenceError
from slipstream.errors import Error

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream, Stream

_RACES_MAX = 1000
_RACE_WAIT_SECONDS = 0.01
_ENVELOPE_BYTES = 512  # of a claim: its headers, and what it says besides the places


class Claim(msgspec.Struct, frozen=True):
    """Stored rows that a partition leaves out: their places, as `packed` packs them."""

    run: str
    partition: int
    places: str


class Claims:
    """The claims of one task on the rows of `stored`: identities in the order of the stream.

    `taken_at` is the sequence with which the run began. `total` counts the stored rows, `met`
    those that this task has left out.
    """

    def __init__(
        self, writer: str, partition: int, run: str, taken_at: int, stored: list[bytes]
    ) -> None:
        self._subject = f"{writer}.claims"
        self._partition = partition
        self._run = run
        self._read_to = taken_at
        self._last = 0  # sequence of the last claim that was read
        self._identities = stored
        self._free: dict[bytes, list[int]] = {}
        for place in range(len(stored) - 1, -1, -1):
            self._free.setdefault(stored[place], []).append(place)
        self._is_claimed = bytearray(len(stored))
        self._mine: dict[bytes, int] = {}  # claimed for this partition, and not met yet
        self.total = len(stored)
        self.met = 0

    async def connect(self, js: "JetStream", stream: "Stream") -> None:
        """Work over this connection from now on; read what was claimed."""
        self._js = js
        self._stream = stream
        await self._read()

    async def leave_out(self, block: RowBlock) -> None:
        """Leave out the rows of a block that are stored."""
        for _ in range(_RACES_MAX):
            mine, places = self._look(block)
            if not places:
                break
            if not await self._claim(places):
                await asyncio.sleep(_RACE_WAIT_SECONDS)
        else:
            raise Error(f"{self._subject}: other tasks keep claiming; try again")
        for row in mine:
            self._mine[block.digests[row * 16 : row * 16 + 16]] -= 1
            block.leave_out(row)
        self.met += len(mine)

    def _look(self, block: RowBlock) -> tuple[list[int], list[int]]:
        """Rows that are claimed for this partition, and the places to claim for others."""
        claimed: list[int] = []
        places: list[int] = []
        mine: dict[bytes, int] = {}
        used: dict[bytes, int] = {}
        for row, state in enumerate(block.states):
            digest = block.digests[row * 16 : row * 16 + 16]
            if state != TO_SEND or digest not in self._free:
                continue
            if mine.get(digest, 0) < self._mine.get(digest, 0):
                mine[digest] = mine.get(digest, 0) + 1
                claimed.append(row)
                continue
            nth = used.get(digest, 0)
            free = self._free[digest]
            if nth == 0:
                free = [place for place in free if not self._is_claimed[place]]
                self._free[digest] = free
            if nth < len(free):
                used[digest] = nth + 1
                places.append(free[len(free) - 1 - nth])
        return claimed, places

    async def _claim(self, places: list[int]) -> bool:
        """Claim places; False if others have claimed in between, whose claims are now read."""
        room = self._js.connection.max_payload - _ENVELOPE_BYTES
        for part in cut(sorted(places), room):
            claim = Claim(self._run, self._partition, packed(part))
            try:
                ack = await self._js.publish(
                    self._subject,
                    msgspec.json.encode(claim),
                    expected_stream=self._stream.name,
                    expected_last_sequence_per_subject=self._last,
                )
            except WrongLastSequenceError:
                await self._read()
                return False
            self._last = self._read_to = ack.sequence
            self._note(claim)
        return True

    async def _read(self) -> None:
        """Read the claims that were made since the last look."""
        try:
            last = await self._stream.get_last_message(self._subject, direct=False)
        except MessageNotFoundError:
            return
        if last.sequence > self._read_to:
            scan = self._stream.scan(
                self._read_to + 1, last.sequence, subjects=self._subject, columns=["data"]
            )
            async for batch in scan:
                for data in batch.column("data").to_pylist():
                    self._note(msgspec.json.decode(data, type=Claim))
            self._read_to = last.sequence
        self._last = last.sequence

    def _note(self, claim: Claim) -> None:
        if claim.run != self._run:
            return
        for place in unpacked(claim.places):
            if self._is_claimed[place]:
                continue
            self._is_claimed[place] = 1
            if claim.partition == self._partition:
                digest = self._identities[place]
                self._mine[digest] = self._mine.get(digest, 0) + 1


def cut(places: list[int], room: int) -> Iterator[list[int]]:
    """Sorted places in parts that take at most `room` bytes each when they are packed."""
    if len(places) == 1 or len(packed(places)) <= room:
        yield places
        return
    half = len(places) // 2
    yield from cut(places[:half], room)
    yield from cut(places[half:], room)


def packed(places: list[int]) -> str:
    """Places as text: differences of the sorted numbers, deflated. A run costs next to nothing."""
    before = 0
    steps = []
    for place in sorted(places):
        steps.append(place - before)
        before = place
    data = b"".join(step.to_bytes(4, "little") for step in steps)
    return b85encode(zlib.compress(data, 6)).decode()


def unpacked(text: str) -> list[int]:
    """The places that `packed` made the text of."""
    data = zlib.decompress(b85decode(text))
    place = 0
    places = []
    for at in range(0, len(data), 4):
        place += int.from_bytes(data[at : at + 4], "little")
        places.append(place)
    return places
