"""Recovery of the log: whatever happened to its files, it opens, and gives out nothing false.

A log is written, its files are damaged, and it is opened in both builds. Then

* every message that can be read is one that was stored, under its own sequence and subject;
* what it says of itself is what can be read: the number of messages, the first and the last one
  (where a footer is damaged beside records, those are missed by the next start only);
* a sequence that was given out is not given out again while the record of the log's end is whole;
* a second start finds the same, and what is stored after the damage is there as well.
"""

from random import Random
from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, agree

SEGMENT = 1_500  # bytes: about ten messages
MESSAGES_MAX = 50
DICTIONARY = [b"SLIPSEG1", b"SLFT", b"\xa5\x01", b"\xa5\x02", b"\xa5\x03", b"\xa5\x04", b"\0" * 8]
_LOGS: dict[tuple[int, int], Any] = {}  # files of a log, by its kind and length


def seeds() -> list[bytes]:
    """Logs of every kind with one damage of every kind."""
    return [
        bytes([kind, 40, damage, 0, 1, 2, 100, 30, 7, 0xA5])
        for kind in range(6)
        for damage in range(8)
    ]


def make(plain: Build, compiled: Build) -> OneInput:
    """Damage a log, and open it with each build."""
    logs = [_Log(build) for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        kind, count = choices.byte() % 6, choices.byte() % MESSAGES_MAX
        if (kind, count) not in _LOGS:
            _LOGS[kind, count] = logs[0].written(kind, count)
        before = _LOGS[kind, count]
        files = damaged(before, choices)
        ends = [path for path in before if path.startswith("end")]
        used = 0
        if ends and all(files.get(path) == before[path] for path in ends):
            used = count if kind != 5 else count // 3 * 3  # what was committed
        found = [log.opened(files, used) for log in logs]
        agree("the log that was opened", found[0], found[1])

    return one_input


class _Log:
    """Logs of one build, on a simulated disk."""

    def __init__(self, build: Build) -> None:
        self._disk = build("slipstream.testing.simulated_disk").SimulatedDisk
        self._open = build("slipstream.log.recovery").open_log
        self._copies = build("slipstream.log.stream_store").TwinFile
        self._record = build("slipstream.log.record").Record

    def _begin(self, disk: Any) -> Any:
        return self._open(disk, "log", None, 1, SEGMENT, self._copies(disk, "end"))

    def written(self, kind: int, count: int) -> dict[str, bytes]:
        """The files of a log with so many messages; `kind` is what else happened to it."""
        disk = self._disk(Random(1))
        log = self._begin(disk)
        for _ in range(count):
            _store(log)
            if log.last_seq % 3 == 0 or kind != 5:
                _commit(log, jobs=kind != 4)
            if kind == 1 and log.last_seq % 4 == 0:
                log.remove(log.last_seq - 2, log.last_seq % 8 == 0)
            if kind == 2 and log.last_seq == count // 2:
                log.drop_below(count // 3)
            if kind == 3 and log.last_seq % 10 == 5:
                log.advance(log.last_seq + 3)
        if kind in (0, 1, 2):
            log.close()
        else:
            log.keep_end_at_once()
        return {path: disk.read(path) for path in disk.files()}

    def opened(self, files: dict[str, bytes], used: int) -> list[object]:
        """What a log with these files is; sequences up to `used` were given out."""
        disk = self._disk(Random(1))
        disk.makedirs("log")
        for path, content in files.items():
            if "/" in path:
                disk.makedirs(path.rpartition("/")[0])
            file = disk.open(path)
            file.append(content)
            file.sync()
            file.close()
        log = self._begin(disk)
        if log.last_seq < used:
            raise Finding(
                f"{used} sequences were given out, and the next one is {log.last_seq + 1}"
            )
        first = self._told(log)
        log.close()
        log = self._begin(disk)
        second = self._told(log)
        if first[0] != second[0]:
            raise Finding(f"a second start found something else\n  {first}\n  {second}")
        if second[1] != len(second[0]) or (second[0] and second[2] != second[0][0]):
            raise Finding(f"messages and first sequence are not those that are there: {second}")
        before = log.last_seq
        for _ in range(3):
            _store(log)
            _commit(log)
        log.close()
        log = self._begin(disk)
        third = self._told(log)
        if third[0] != second[0] + [before + 1, before + 2, before + 3]:
            raise Finding(
                f"what was stored after the damage is not all there\n  {second}\n  {third}"
            )
        log.close()
        return [first, second, third]

    def _told(self, log: Any) -> list[Any]:
        record = self._record()
        found = []
        seq = 1
        while log.next(seq, None, record):
            if record.seq < seq:
                raise Finding(f"looking from {seq} on found {record.seq}")
            seq = record.seq
            if (record.subject, record.body(), record.ts) != (*_message(seq), 1_000 + seq):
                raise Finding(f"message {seq} was not stored: {record.subject!r} {record.body()!r}")
            found.append(seq)
            seq += 1
        if found and log.last_seq < found[-1]:
            raise Finding(f"the last message is {log.last_seq}, and there are {found}")
        counts = sum(log.subject_counts(b">").values())
        if counts != log.messages or counts < len(found):
            raise Finding(f"{counts} messages by subject, {log.messages} in all of {found}")
        lost = [log.lost.count, log.lost.sequences]
        return [found, log.messages, log.first_seq, log.last_seq, log.bytes, *lost]


def _message(seq: int) -> tuple[bytes, bytes]:
    """Subject and body of a message."""
    return b"s.%d" % (seq % 3), (b"message %d " % seq).ljust(40 + seq * 7 % 90, b".")


def _store(log: Any) -> None:
    seq = log.last_seq + 1
    subject, body = _message(seq)
    log.append(subject, body, 0, 0, len(body), 1_000 + seq)


def _commit(log: Any, jobs: bool = True) -> None:
    batch = log.prepare_sync()
    if batch is not None:
        batch.run()
        log.finish_sync(batch)
    if jobs:
        for job in log.take_jobs():
            job.run()
            job.finish()


def damaged(files: dict[str, bytes], choices: Choices) -> dict[str, bytes]:
    """The files after some damage of each kind that disks and people do."""
    found = dict(files)
    for _ in range(4):
        if not choices.left() or not found:
            break
        kind = choices.byte() % 7
        path = choices.pick(sorted(found))
        content = bytearray(found[path])
        at = choices.below(len(content) + 1)
        if kind == 0:  # bytes go bad
            new = choices.text(12)
            content[at : at + len(new)] = new
        elif kind == 1:  # a bit
            if at < len(content):
                content[at] ^= 1 << choices.byte() % 8
        elif kind == 2:  # the end is missing
            del content[at:]
        elif kind == 3:  # a part was never written
            size = choices.below(600)
            content[at : at + size] = bytes(len(content[at : at + size]))
        elif kind == 4:  # more bytes follow
            content += choices.text(60)
        elif kind == 5:  # a part stands where another one was
            size = choices.below(300)
            part = content[choices.below(len(content) + 1) :][:size]
            content[at : at + len(part)] = part
        elif kind == 6:  # the file is gone
            del found[path]
            continue
        else:  # another file has its content
            content = bytearray(found[choices.pick(sorted(found))])
        found[path] = bytes(content)
    return found
