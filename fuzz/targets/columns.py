"""The log's columns and subject index on raw memory, under any order of calls, in both builds."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, agree, outcome

STEPS_MAX = 60
GONE = 0xFFFFFFFF
DICTIONARY = [b"\xf0", b"\xff\xff\xff\xff", b"\0\0\0\0"]
_TOKENS = (b"a", b"b", b"x", b"7", b"longer-token", b"\xff")
_PATTERNS = (
    (b"a.b",), (b"a.*",), (b"*.x.>",), (b">",), (b"a", b"b.>"), (b"*.*.7", b"*.b"), (b"a.*.*.7",),
    (b"*", b"*.*"),
)  # fmt: skip


def seeds() -> list[bytes]:
    """Columns that grow and shrink, and indexes with few and with many subjects."""
    return [
        bytes([0, *range(80)]),
        bytes([0, *(n * 7 % 256 for n in range(200))]),
        bytes([1, 0, *range(120)]),
        bytes([1, 1, *(n * 11 % 256 for n in range(200))]),
    ]


def make(plain: Build, compiled: Build) -> OneInput:
    """Do the same with columns, or with an index, of each build."""
    columns = [build("slipstream.log.columns") for build in (plain, compiled)]
    indexes = [build("slipstream.log.subject_index") for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        if data[:1] and data[0] % 2:
            found = [_index(module, Choices(data[1:])) for module in indexes]
            agree("SubjectIndex", found[0], found[1])
        else:
            found = [
                _column(column.Column, index, Choices(data[1:]))
                for column, index in zip(columns, indexes, strict=True)
            ]
            agree("Column", found[0], found[1])

    return one_input


def _column(kind: Any, index_module: Any, choices: Choices) -> list[object]:
    """Steps on one column; subjects with the ids 0 to 5 exist."""
    index = index_module.SubjectIndex()
    for seq, token in enumerate(_TOKENS):
        index.added(index.intern(b"a." + token), seq + 1)
    column = kind()
    found: list[object] = []
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        column, result = _column_step(kind, column, index_module, index, choices)
        found.append((result, column.size))
    return [found, [column.get(i) for i in range(column.size)]]


def _column_step(
    kind: Any, column: Any, index_module: Any, index: Any, choices: Choices
) -> tuple[Any, object]:
    step = choices.below(14)
    if step <= 3:
        for _ in range(choices.pick((1, 1, 3, 40))):
            column.append(choices.pick((choices.byte() % 6, GONE)))
        return column, None
    i, k = choices.signed(), choices.signed()
    if step == 4:
        return column, outcome(IndexError, column.get, i)
    if step == 5:
        return column, outcome(IndexError, column.set, i, abs(k) % 6)
    if step == 6:
        return column, (column.next_used(i), column.last_of(i, abs(k) % 6))
    if step == 7:
        matching = index_module.SubjectFilter(index, choices.pick(_PATTERNS))
        return column, (column.next_of(i, matching), column.count_of(i, k, matching))
    if step == 8:
        return column, column.count_used(i, k)
    if step == 9:
        return column, outcome(IndexError, column.truncate, i)
    if step == 10:
        width = choices.pick((1, 2, 4))
        packed = choices.text(60)
        packed = packed[: len(packed) // width * width]
        names = choices.pick((None, [3, 1, 4, 1, 5], []))
        unpacked = outcome(ValueError, kind.unpack, packed, width, names)
        found = outcome(ValueError, column.pack, width)
        if not isinstance(unpacked, kind):
            return column, (unpacked, found)
        return column, (list(map(unpacked.get, range(unpacked.size))), found)
    if step == 11:
        dense, values = column.translate()
        again = kind.unpack(dense.pack(4), 4, values)
        if [again.get(n) for n in range(again.size)] != [column.get(n) for n in range(column.size)]:
            raise Finding("a translated column does not come back")
        return column, (values, dense.stats(len(values)))
    if step == 12:
        return column, column.bury(bytearray(choices.text(20)))
    start = abs(k) % 2**32
    fits = column.next_used(0) < 0 or all(column.get(n) != GONE for n in range(column.size))
    rising = all(column.get(n) <= column.get(n + 1) for n in range(column.size - 1))
    if fits and rising and column.size and start <= column.get(0):
        steps = kind.unpack_steps(column.pack_steps(start), start)
        return column, list(map(steps.get, range(steps.size)))
    return column, None


def _index(module: Any, choices: Choices) -> list[object]:
    """Messages come and go; the index finds the subjects that are left."""
    index = module.SubjectIndex()
    filters = [module.SubjectFilter(index, patterns) for patterns in _PATTERNS]
    live: dict[bytes, list[int]] = {}
    found: list[object] = []
    seq = 0
    if choices.byte() % 2:  # more subjects than are looked at one by one
        for number in range(300):
            seq += 1
            index.added(index.intern(b"a.%d.x.7" % number), seq)
            live[b"a.%d.x.7" % number] = [seq]
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        step = choices.below(8)
        if step <= 3:
            seq += 1
            subject = b".".join(choices.pick(_TOKENS) for _ in range(1 + choices.below(4)))
            index.added(index.intern(subject), seq)
            live.setdefault(subject, []).append(seq)
        elif step <= 5 and live:
            subject = choices.pick(sorted(live))
            gone = choices.pick(live[subject])
            index.removed(index.find(subject), gone)
            live[subject].remove(gone)
            if not live[subject]:
                del live[subject]
        elif step == 6:
            names = choices.text(30)
            stats = choices.text(48)
            found.append(_loaded(module, names, stats))
        else:
            matching = choices.pick(filters)
            asked = choices.below(seq + 2)
            ids = sorted(index.subject(id) for id in matching.ids())
            found.append((ids, matching.total(), matching.at_or_after(asked)))
        unknown = choices.signed() % 2**32
        found.append(outcome(IndexError, index.count, unknown))
    for subject, sequences in live.items():
        id = index.find(subject)
        if (index.subject(id), index.count(id)) != (subject, len(sequences)):
            raise Finding(f"{subject!r} is found as {index.subject(id)!r}")
        found.append((index.first(id), index.last(id)))
    return [*found, index.live]


def _loaded(module: Any, names: bytes, stats: bytes) -> object:
    """A block of subjects from a footer, or that it is refused."""
    index = module.SubjectIndex()
    refused = outcome(ValueError, index.load_block, names, stats, 7)
    return refused or index.live
