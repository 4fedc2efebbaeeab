"""`/jsz`: JetStream, its accounts, streams and consumers
(docs/protocol/monitoring.md#endpoints)."""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.api.consumer_info import consumer_info
from slipstream.engine.api.stream_info import stream_info
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.stream.stream import Stream
from slipstream.server.monitoring.endpoints.connz import LIMIT_DEFAULT
from slipstream.server.monitoring.endpoints.varz import (
    jetstream_config,
    jetstream_limits,
    jetstream_stats,
    meta_cluster,
)
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import Query

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import ConsumerInfo

_UINT64 = 2**64
_NOTHING = {
    "memory": 0,
    "storage": 0,
    "reserved_memory": 0,
    "reserved_storage": 0,
    "accounts": 0,
    "ha_assets": 0,
    "api": {"level": 0, "total": 0, "errors": 0},
}


class JszOptions(msgspec.Struct, kw_only=True):
    """How much to tell. The names are those of a request's body over `$SYS`."""

    account: str = ""  # only about this one
    accounts: bool = False
    streams: bool = False  # and so accounts
    consumer: bool = False  # and so streams
    direct_consumer: bool = False
    config: bool = False  # of streams and consumers
    leader_only: bool = False
    stream_leader_only: bool = False
    offset: int = 0  # of accounts
    limit: int = 0  # 0 is 1024
    raft: bool = False


def jsz_options(query: Query) -> JszOptions:
    """From an HTTP request. Raises `BadRequest`."""
    return JszOptions(
        account=query.text("acc"),
        accounts=query.boolean("accounts"),
        streams=query.boolean("streams"),
        consumer=query.boolean("consumers"),
        direct_consumer=query.boolean("direct-consumers"),
        config=query.boolean("config"),
        offset=query.integer("offset"),
        limit=query.integer("limit"),
        leader_only=query.boolean("leader-only"),
        raft=query.boolean("raft"),
        stream_leader_only=query.boolean("stream-leader-only"),
    )


def jsz(monitor: Monitor, options: JszOptions) -> dict[str, Any]:
    """JetStream, as deep as was asked."""
    enabled = monitor.options.jetstream.enabled
    answer = {**(jetstream_stats(monitor) if enabled else _NOTHING), **monitor.head()}
    if not enabled:
        answer |= {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}}
        return answer | {"streams": 0, "consumers": 0, "messages": 0, "bytes": 0, "total": 0}
    found = _with_jetstream(monitor)
    streams = [stream for js in found.values() for stream in js.streams.values()]
    answer["config"] = jetstream_config(monitor)
    answer["limits"] = jetstream_limits(monitor)
    answer |= {
        "streams": len(streams),
        "consumers": sum(len(stream.consumers) for stream in streams),
        "messages": sum(stream.log.messages for stream in streams),
        "bytes": sum(stream.log.bytes for stream in streams),
    }
    group = monitor.engine.group
    if options.raft and group is not None:  # whoever answers leads all of them
        answer |= {"streams_leader": answer["streams"], "consumers_leader": answer["consumers"]}
    if group is not None:
        answer["meta_cluster"] = meta_cluster(monitor, group)
    details = _account_details(monitor, found, options)
    if details:
        answer["account_details"] = details
    answer["total"] = len(found)
    return answer


def _with_jetstream(monitor: Monitor) -> dict[str, JetStream]:
    accounts = monitor.engine.accounts
    return {
        name: accounts[name].jetstream
        for name in sorted(accounts)
        if accounts[name].jetstream is not None
    }


def _account_details(
    monitor: Monitor, found: dict[str, JetStream], options: JszOptions
) -> list[dict[str, Any]]:
    if options.account:
        names = [options.account] if options.account in found else []
    elif options.accounts or options.streams or options.consumer:
        offset = max(options.offset, 0)
        limit = options.limit if options.limit > 0 else LIMIT_DEFAULT
        names = list(found)[offset : offset + limit]
    else:
        names = []
    return [account_detail(monitor, found[name], options) for name in names]


def account_detail(monitor: Monitor, js: JetStream, options: JszOptions) -> dict[str, Any]:
    """JetStream of one account."""
    detail: dict[str, Any] = {
        "name": js.account.name,
        "id": js.account.name,
        "memory": js.used("memory"),
        "storage": js.used("file"),
        # What is set aside for the account; no bound is -1, which nats-server shows unsigned.
        "reserved_memory": js.limits.max_memory % _UINT64,
        "reserved_storage": js.limits.max_storage % _UINT64,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": js.api_total, "errors": js.api_errors},
    }
    if (options.streams or options.consumer) and js.streams:
        detail["stream_detail"] = [
            _stream_detail(monitor, js.streams[name], options) for name in sorted(js.streams)
        ]
    return detail


def _stream_detail(monitor: Monitor, stream: Stream, options: JszOptions) -> dict[str, Any]:
    info = stream_info(stream, with_version=False)
    detail: dict[str, Any] = {
        "name": stream.name,
        "created": info["created"],
        "cluster": info.get("cluster", {"leader": monitor.engine.server_name}),
    }
    if options.config:
        detail["config"] = info["config"]
    detail["state"] = info["state"]
    if options.consumer and stream.consumers:
        detail["consumer_detail"] = [
            _consumer_detail(stream, name, options) for name in sorted(stream.consumers)
        ]
    if info.get("mirror"):
        detail["mirror"] = info["mirror"]
    if info.get("sources"):
        detail["sources"] = info["sources"]
    return detail


def _consumer_detail(stream: Stream, name: str, options: JszOptions) -> "ConsumerInfo":
    info = consumer_info(stream.consumers[name], with_version=False)
    if not options.config:
        del info["config"]
    return info
