"""CloudEvents in messages of NATS: an event's attributes as columns, its data in any format.

    binary        attributes in headers ``ce-id``, ``ce-source`` ...; the body is the data
    structured    header ``content-type: application/cloudevents+json``; the body has both as JSON

A message with neither is taken for a structured one, as from before NATS had headers. Values of
headers may be percent-encoded. Attributes beyond the specification's own are in `extensions`.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from slipstream.schemas.decoding import NO_BODY, Decoded, Decoder, in_microseconds
from slipstream.schemas.errors import SchemaError
from slipstream.schemas.formats import Body, Json

Headers = Mapping[str, Sequence[str]]

_PREFIX = "ce-"
_STRUCTURED = "application/cloudevents"
_BATCH = "application/cloudevents-batch"
_REQUIRED = ("id", "source", "specversion", "type")
_OPTIONAL = ("subject", "datacontenttype", "dataschema")
_OWN = frozenset((*_REQUIRED, *_OPTIONAL, "time", "data", "data_base64"))


class Event(TypedDict, total=False):
    """The attributes of an event as columns."""

    id: str | None
    source: str | None
    specversion: str | None
    type: str | None
    subject: str | None
    datacontenttype: str | None
    dataschema: str | None
    time: datetime
    extensions: dict[str, str]


Attributes = Mapping[str, str | None]


class CloudEvents(msgspec.Struct, frozen=True):
    """Events with data of a format; without one, `data` has the bytes."""

    data: Body | None = None

    async def pinned(self) -> "CloudEvents":
        """With the newest schema of the data. Raises `SchemaError`."""
        return self if self.data is None else CloudEvents(await self.data.pinned())

    def arrow_type(self) -> pa.DataType:
        """The type of events. Raises `SchemaError`."""
        inner = pa.binary() if self.data is None else in_microseconds(self.data.arrow_type())
        return pa.struct(
            [
                *(pa.field(name, pa.string(), nullable=False) for name in _REQUIRED),
                *(pa.field(name, pa.string()) for name in _OPTIONAL),
                pa.field("time", pa.timestamp("us", "UTC")),
                pa.field("extensions", pa.map_(pa.string(), pa.string()), nullable=False),
                pa.field("data", inner),
            ]
        )


class EventDecoder:
    """Reads events of one pinned format."""

    def __init__(self, form: CloudEvents) -> None:
        self.type = form.arrow_type()
        self._data = None if form.data is None else Decoder(form.data)
        self._is_json = type(form.data) is Json

    async def decode(
        self, bodies: Sequence[bytes | None], headers: Sequence[Headers | None]
    ) -> Decoded:
        """The events. Raises `RegistryError` if the registry does not answer."""
        events: list[Event | None] = []
        payloads: list[bytes | None] = []
        reasons: list[str | None] = []
        for body, given in zip(bodies, headers, strict=True):
            event = payload = reason = None
            try:
                event, payload = self._event(body, given or {})
            except SchemaError as error:
                reason = str(error)
            events.append(event)
            payloads.append(payload)
            reasons.append(reason)
        if self._data is None:
            data: pa.Array = pa.array(payloads, pa.binary())
        else:
            found = await self._data.decode(payloads)
            data = found.values
            for at, why in enumerate(found.reasons.to_pylist()):
                if why is not None and why != NO_BODY and reasons[at] is None:
                    reasons[at], events[at] = f"its data: {why}", None
        return Decoded(self._columns(events, data), pa.array(reasons, pa.string()))

    async def close(self) -> None:
        """Close the registry of the data, if it was opened."""
        if self._data is not None:
            await self._data.close()

    def _columns(self, events: list[Event | None], data: pa.Array) -> pa.Array:
        empty: Event = {"extensions": {}}
        rows = [event if event is not None else empty for event in events]
        arrays = [
            pa.array([row.get(field.name) for row in rows], field.type)
            for field in self.type
            if field.name != "data"
        ]
        mask = pa.array([event is None for event in events], pa.bool_())
        return pa.StructArray.from_arrays([*arrays, data], fields=list(self.type), mask=mask)

    def _event(self, body: bytes | None, headers: Headers) -> tuple[Event, bytes | None]:
        """The attributes of an event, and its data. Raises `SchemaError`."""
        given = {name.lower(): values[0] for name, values in headers.items() if values}
        content = given.get("content-type", "")
        media_type = content.lower()
        if media_type.startswith(_BATCH):
            raise SchemaError("it is a batch of events, which NATS has no messages for")
        if f"{_PREFIX}specversion" in given:
            attributes: dict[str, str | None] = {
                name.removeprefix(_PREFIX): unquote(value)
                for name, value in given.items()
                if name.startswith(_PREFIX)
            }
            if content:
                attributes["datacontenttype"] = content
            return _checked(attributes), body or None
        if content and not media_type.startswith(_STRUCTURED):
            raise SchemaError(f"it is no event: no header ce-specversion, and it is {content}")
        if body is None:
            raise SchemaError(NO_BODY)
        try:
            whole = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            attributes = {
                name: _text_of(value)
                for name, value in whole.items()
                if name not in ("data", "data_base64")
            }
            return _checked(attributes), self._payload(whole)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SchemaError(f"it is no event in JSON: {error}") from error

    def _payload(self, whole: dict[str, msgspec.Raw]) -> bytes | None:
        if "data_base64" in whole:
            return base64.b64decode(
                msgspec.json.decode(whole["data_base64"], type=str), validate=True
            )
        data = bytes(whole.get("data", b"null"))
        if data == b"null":
            return None
        if not self._is_json and data.startswith(b'"'):
            text: str = msgspec.json.decode(data)
            return text.encode()
        return data


def _checked(attributes: Attributes) -> Event:
    """The attributes as columns. Raises `SchemaError` if one is missing."""
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise SchemaError(f"an event needs {', '.join(missing)}")
    extensions = {
        name: value for name, value in attributes.items() if name not in _OWN and value is not None
    }
    event: Event = {
        "id": attributes["id"],
        "source": attributes["source"],
        "specversion": attributes["specversion"],
        "type": attributes["type"],
        "subject": attributes.get("subject"),
        "datacontenttype": attributes.get("datacontenttype"),
        "dataschema": attributes.get("dataschema"),
        "extensions": extensions,
    }
    if attributes.get("time"):
        try:
            event["time"] = msgspec.convert(attributes["time"], datetime)
        except msgspec.ValidationError as error:
            raise SchemaError(f"its time {attributes['time']!r} is none of RFC 3339") from error
    return event


def _text_of(value: msgspec.Raw) -> str | None:
    """A JSON value as text: a string is itself, null nothing."""
    found = msgspec.json.decode(value)
    if found is None or isinstance(found, str):
        return found
    return bytes(value).decode()
