"""Keys for hash tables on raw memory, so that nobody can make subjects that all fall into one slot.

Tables of Python's own have a key already. No order depends on a key: ids are given in the order in
which subjects come.
"""

from os import urandom

_LEAST = 2**60  # of a key, so that each step changes all bits of a hash


def new_key() -> int:
    """A number below 2**61 - 1 that nobody can guess; each table has one of its own."""
    return _LEAST + int.from_bytes(urandom(8), "little") % (_LEAST - 1)
