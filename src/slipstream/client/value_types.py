"""The type variables of values, which follow the `type` that a call was given.

Where a call was given none, its values are bytes (`Given`); where a program leaves the type out of
an annotation, as in `KeyValue`, they may be anything (`Value_co`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers have it; Python's own has no defaults yet

    Value_co = TypeVar("Value_co", covariant=True, default=Any)
    Given = TypeVar("Given", default=bytes)
else:
    from typing import TypeVar

    Value_co = TypeVar("Value_co", covariant=True)
    Given = TypeVar("Given")
