"""What an account uses and may use (docs/protocol/api.md#what-an-account-uses)."""

from typing import TYPE_CHECKING

from slipstream.engine.api.covered import covered
from slipstream.engine.api.dispatch import Covered, Fields, Operation, Request
from slipstream.engine.protocol.options import API_LEVEL

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.protocol.infos import AccountInfo


def info(js: "JetStream", _request: Request) -> Fields | Covered:
    """`$JS.API.INFO`."""
    limits = js.limits
    answer: AccountInfo = {
        "memory": js.used("memory"),
        "storage": js.used("file"),
        "reserved_memory": js.reserved("memory"),
        "reserved_storage": js.reserved("file"),
        "streams": len(js.streams),
        "consumers": sum(len(stream.consumers) for stream in js.streams.values()),
        "limits": {
            "max_memory": limits.max_memory,
            "max_storage": limits.max_storage,
            "max_streams": limits.max_streams,
            "max_consumers": limits.max_consumers,
            "max_ack_pending": limits.max_ack_pending,
            "memory_max_stream_bytes": limits.memory_max_stream_bytes,
            "storage_max_stream_bytes": limits.storage_max_stream_bytes,
            "max_bytes_required": limits.max_bytes_required,
        },
    }
    if js.domain:
        answer["domain"] = js.domain
    answer["api"] = {"level": API_LEVEL, "total": js.api_total, "errors": js.api_errors}
    return covered(js, answer, js.streams.values())


OPERATIONS = [Operation("INFO", 0, "account_info_response", info, {})]
