"""JSON Schema as Arrow types: enough of it for what has columns.

Objects with properties are structs, with `additionalProperties` alone maps, arrays lists. A string
is a date or a time by its `format`, bytes with `contentEncoding` base64, a decimal with the format
`decimal` (which msgspec writes). `anyOf` and `oneOf` of one type and null is that type, with nulls.
What may be of several types stays JSON, as text.
"""

import json

import pyarrow as pa

from slipstream.schemas.errors import SchemaError

_FORMATS = {
    "date-time": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "decimal": pa.decimal128(38, 18),
}
_PLAIN = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "null": pa.null(),
}
_FIELDS_MAX = 10_000  # a schema that refers to others twice at each level would have millions
JSON_TEXT = {b"slipstream": b"json"}
"""The metadata of a field whose value is JSON as text."""


def arrow_type(text: str) -> pa.DataType:
    """The type of what a JSON Schema describes. Raises `SchemaError`."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is not valid JSON: {error}") from error
    if not isinstance(whole, dict):
        raise SchemaError("the JSON Schema is not a JSON object")
    try:
        found = _Fields(whole).of("the whole", whole, (), is_required=True)
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise SchemaError(f"the JSON Schema is not valid: {error!r}") from error
    if found.metadata == JSON_TEXT:
        raise SchemaError("the JSON Schema has no properties, so there are no columns")
    return found.type


class _Fields:
    def __init__(self, whole: dict[str, object]) -> None:
        self._whole = whole
        self._fields = 0

    def of(
        self, name: str, schema: object, within: tuple[str, ...], *, is_required: bool
    ) -> pa.Field:
        """The field for a schema within the whole one."""
        self._fields += 1
        if self._fields > _FIELDS_MAX:
            raise SchemaError(f"the JSON Schema has more than {_FIELDS_MAX} fields")
        if not isinstance(schema, dict):  # true: anything
            return _any(name, is_required)
        if "$ref" in schema:
            reference = str(schema["$ref"])
            if reference in within:
                raise SchemaError(f"{reference} has itself within itself, which no column holds")
            found = self._referred(reference)
            return self.of(name, found, (*within, reference), is_required=is_required)
        members, kinds = schema.get("anyOf") or schema.get("oneOf"), schema.get("type")
        if members is None and isinstance(kinds, list):
            members = [{**schema, "type": one} for one in kinds]
        if isinstance(members, list):
            others = [one for one in members if one != {"type": "null"} and not _is_null(one)]
            may_be_null = len(others) < len(members)
            if len(others) == 1:
                return self.of(name, others[0], within, is_required=is_required and not may_be_null)
            return _any(name, is_required and not may_be_null)
        return self._plain(name, schema, within, is_required)

    def _plain(
        self, name: str, schema: dict[str, object], within: tuple[str, ...], is_required: bool
    ) -> pa.Field:
        kind = schema.get("type")
        properties = schema.get("properties")
        if kind == "object" and properties and isinstance(properties, dict):
            required = schema.get("required")
            needed = required if isinstance(required, list) else []
            fields = [
                self.of(one, inner, within, is_required=one in needed)
                for one, inner in properties.items()
            ]
            return pa.field(name, pa.struct(fields), nullable=not is_required)
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            value = self.of("value", schema["additionalProperties"], within, is_required=True)
            if value.metadata != JSON_TEXT:
                return pa.field(name, pa.map_(pa.string(), value), nullable=not is_required)
        if kind == "array" and isinstance(schema.get("items"), dict):
            element = self.of("element", schema["items"], within, is_required=True)
            if element.metadata != JSON_TEXT:
                return pa.field(name, pa.list_(element), nullable=not is_required)
        if kind == "string" and schema.get("contentEncoding") == "base64":
            return pa.field(name, pa.binary(), nullable=not is_required)
        form = schema.get("format")
        if kind == "string" and isinstance(form, str) and form in _FORMATS:
            return pa.field(name, _FORMATS[form], nullable=not is_required)
        if isinstance(kind, str) and kind in _PLAIN:
            return pa.field(name, _PLAIN[kind], nullable=not is_required)
        return _any(name, is_required)

    def _referred(self, reference: str) -> object:
        found: object = self._whole
        if not reference.startswith("#"):
            raise SchemaError(f"the JSON Schema refers to {reference}, which is not within it")
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise SchemaError(f"the JSON Schema has no {reference}")
            found = found[part]
        return found


def _any(name: str, is_required: bool) -> pa.Field:
    return pa.field(name, pa.string(), nullable=not is_required, metadata=JSON_TEXT)


def _is_null(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"
