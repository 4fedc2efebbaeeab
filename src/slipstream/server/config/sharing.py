"""Exports and imports of accounts (docs/protocol/accounts.md#exports-and-imports).

What one entry says is checked here; whether imports fit the exports of other accounts, once all
accounts are known, in `server.sharing`.
"""

from typing import Any

from slipstream.server.config.blocks import Block, entries_of, optional, refused
from slipstream.server.config.kinds import (
    Boolean,
    Count,
    Kind,
    Notes,
    String,
    Wrong,
    duration,
    read_string,
)
from slipstream.server.config.tree import Value
from slipstream.server.sharing import SERVICE, STREAM, ExportOptions, ImportOptions

_RESPONSE_TYPES = {
    "single": "singleton",
    "singleton": "singleton",
    "stream": "stream",
    "streamed": "stream",
    "chunk": "chunked",
    "chunked": "chunked",
}
_OF_SERVICES = {  # directives that need a service, and how nats-server calls them
    "response_type": "response",
    "response": "response",
    "response_threshold": "response",
    "threshold": "response",
    "response_max_time": "response",
    "response_time": "response",
    "allow_trace": "allow_trace",
}


def _read_response_type(value: Value, notes: Notes) -> str:
    text = read_string(value, notes)
    if text.lower() not in _RESPONSE_TYPES:
        raise Wrong(f'Unknown response type: "{text}"', value.place)
    return _RESPONSE_TYPES[text.lower()]


def _read_threshold(value: Value, notes: Notes) -> int:
    expected = "Expected response threshold to be a parseable time duration"
    if not isinstance(value.data, str):
        raise Wrong(f"{expected}, found {value.describe()}", value.place)
    try:
        found = duration(value.data)
    except Wrong:
        raise Wrong(f'{expected}, got "{value.data}"', value.place) from None
    return max(found, 0)


def _read_names(value: Value, notes: Notes) -> list[str]:
    if not isinstance(value.data, list):
        raise Wrong(f"expected a list of accounts, found {value.describe()}")
    return [read_string(item, notes) for item in value.data]


def _put_kind(kind: str) -> Any:
    def put(target: ExportOptions, found: str) -> None:
        if target.kind:
            raise Wrong(f'Detected {kind} "{found}" but already saw a {target.kind}')
        target.kind, target.subject = kind, found

    return put


EXPORT = Block(
    "exports",
    (
        optional("stream", String, "Messages that others may have.", put=_put_kind(STREAM)),
        optional("service", String, "Requests that are answered here.", put=_put_kind(SERVICE)),
        optional(
            "accounts", Kind("list of accounts", _read_names), "Who may import it; else everybody."
        ),
        optional(
            "response_type response",
            Kind("singleton, stream or chunked", _read_response_type),
            "One answer to a request, or any number.",
        ),
        optional(
            "response_threshold threshold response_max_time response_time",
            Kind("duration in quotes", _read_threshold),
            "How long an answer may take, and the next one.",
        ),
        optional(
            "account_token_position",
            Count,
            "Which token, a *, has to be the importing account's name.",
        ),
        optional("allow_trace", Boolean, "Traces of messages go on in this account."),
        refused("latency", "Measure how long answers take."),
    ),
)

IMPORT_SOURCE = Block(
    "import",
    (
        optional("account", String, "The account that exports it."),
        optional("subject", String, "Its subject there."),
    ),
)


def _source_of(kind: str) -> Kind:
    def read(value: Value, notes: Notes) -> ImportOptions:
        if not isinstance(value.data, dict):
            text = f"{kind.capitalize()} entry should be an account map, found {value.describe()}"
            raise Wrong(text, value.place)
        found = ImportOptions(kind=kind)
        IMPORT_SOURCE.fill(value, found, notes)
        if not found.account or not found.subject:
            raise Wrong("Expect an account name and a subject", value.place)
        return found

    return Kind("map of account and subject", read)


def _put_source(target: ImportOptions, found: ImportOptions) -> None:
    if target.kind:
        raise Wrong(f"Detected {found.kind} but already saw a {target.kind}")
    target.kind, target.account, target.subject = found.kind, found.account, found.subject


IMPORT = Block(
    "imports",
    (
        optional(
            "stream",
            _source_of(STREAM),
            "Messages of another account.",
            put=_put_source,
            inner=IMPORT_SOURCE,
        ),
        optional(
            "service",
            _source_of(SERVICE),
            "Requests that another account answers.",
            put=_put_source,
            inner=IMPORT_SOURCE,
        ),
        optional("prefix", String, "Goes before the subject of a stream."),
        optional("to", String, "The subject here; $1 is the first * of the other one."),
        optional("share", Boolean, "Requests tell who the client is."),
        optional("allow_trace", Boolean, "Traces of a stream's messages go on in this account."),
    ),
)


def _read_exports(value: Value, notes: Notes) -> list[ExportOptions]:
    if not isinstance(value.data, list):
        raise Wrong(f"Exports should be an array, found {value.describe()}", value.place)
    found = []
    for item in value.data:
        if not isinstance(item.data, dict):
            text = f"Export Items should be a map with type entry, found {item.describe()}"
            raise Wrong(text, item.place)
        export = ExportOptions()
        before = len(notes.errors)
        EXPORT.fill(item, export, notes)
        _check_kind(export.kind, item, notes, before)
        for key, entry in entries_of(item, "exports").items():
            what = _OF_SERVICES.get(key.lower())
            if what and export.kind == STREAM:
                notes.wrong(entry.place, f"Detected {what} directive on non-service")
        found.append(export)
    return found


def _read_imports(value: Value, notes: Notes) -> list[ImportOptions]:
    if not isinstance(value.data, list):
        raise Wrong(f"Imports should be an array, found {value.describe()}", value.place)
    found: list[ImportOptions] = []
    seen: dict[tuple[str, str], ImportOptions] = {}
    for item in value.data:
        if not isinstance(item.data, dict):
            text = f"Import Items should be a map with type entry, found {item.describe()}"
            raise Wrong(text, item.place)
        one = ImportOptions()
        before = len(notes.errors)
        IMPORT.fill(item, one, notes)
        _check_kind(one.kind, item, notes, before)
        if one.kind == SERVICE:
            if one.allow_trace:
                notes.wrong(item.place, "Detected allow_trace directive on a non-stream")
            one.prefix = ""  # is of streams alone
            first = seen.setdefault((one.account, one.local), one)
            if first is not one:
                notes.wrong(
                    item.place,
                    f'Duplicate service import subject "{one.local}", previously used in import '
                    f'for account "{first.account}", subject "{first.subject}"',
                )
        elif one.prefix and one.to:
            text = "Stream import can not have a 'prefix' and a 'to' property"
            notes.wrong(item.place, text)
        found.append(one)
    return found


def _check_kind(kind: str, item: Value, notes: Notes, errors: int) -> None:
    if not kind and len(notes.errors) == errors:
        notes.wrong(item.place, 'an entry needs a "stream" or a "service"')


Exports = Kind("list of maps", _read_exports)
Imports = Kind("list of maps", _read_imports)
