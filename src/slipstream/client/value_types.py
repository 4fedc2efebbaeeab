"""The type variables of values, which follow the `type` that a call was given.

Where a call was given none, its values are bytes (`Given`); where a program leaves the type out of
an annotation, as in `KeyValue`, they may be anything (`Value_co`, `Value`).
"""

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers have it; Python's own has no defaults yet

    Value_co = TypeVar("Value_co", covariant=True, default=Any)
    Value = TypeVar("Value", default=Any)
    Given = TypeVar("Given", default=bytes)

    class Typed(Generic[Value_co]):
        """The second base of a compiled class that has a type variable."""
else:
    from typing import TypeVar

    Value_co = TypeVar("Value_co", covariant=True)
    Value = TypeVar("Value")
    Given = TypeVar("Given")

    class Typed:
        """As above: compiled classes cannot have Generic's bases, and need none to run."""

        __slots__ = ()

        def __class_getitem__(cls, _: object) -> type:
            """The class itself, so that ``Message[Order]`` may stand in an annotation."""
            return cls
