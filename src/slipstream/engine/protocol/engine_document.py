"""A document of JetStream's API as the engine holds it, and how its answers show it."""

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin

import msgspec


class EngineDocument(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A JSON object with the values that JSON has; what has no name is refused."""

    shown: ClassVar[tuple[str, ...]] = ()  # the fields that are shown also where they say nothing
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # that fields may have

    def emit(self) -> dict[str, Any]:
        """As it is kept and as responses show it."""
        emitted: dict[str, Any] = {}
        for name, is_shown, holds_documents, default in _plan(type(self)):
            value = getattr(self, name)
            if holds_documents and value:
                is_list = isinstance(value, list)
                emitted[name] = [one.emit() for one in value] if is_list else value.emit()
            elif is_shown or (value and value != default):
                emitted[name] = value
        return emitted


@cache
def _plan(kind: type[EngineDocument]) -> list[tuple[str, bool, bool, object]]:
    """For each field its name, whether it is always shown, whether it holds documents, and its
    default, which is not shown otherwise."""
    return [
        (field.name, field.name in kind.shown, struct_in(field.type) is not None, field.default)
        for field in msgspec.structs.fields(kind)
    ]


def struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct type that a field is of or may be of, or that the items of its list are of."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType, list) else (kind,)
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None
