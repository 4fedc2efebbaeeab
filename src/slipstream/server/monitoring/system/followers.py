"""What the leader of a group answers for the servers that follow it, to requests that are for all
servers or for one of them (`$SYS.REQ.SERVER.PING...`; docs/group.md#what-clients-see).

No engine runs on a follower. What it uses of its machine and how many clients it brings it says
itself; its files are the leader's, byte for byte; and it has no message, subscription or memory
stream of its own.
"""

from collections.abc import Callable, Iterator

from slipstream.engine.protocol.group import (
    Group,
    Member,
    ServerFacts,
    all_peer_infos,
    online_of,
)
from slipstream.model.times import time_text
from slipstream.server.monitoring.endpoints.jsz import JszOptions, jsz
from slipstream.server.monitoring.endpoints.varz import jetstream_varz, meta_cluster, varz
from slipstream.server.monitoring.monitor import Monitor, uptime_text, whole
from slipstream.server.monitoring.system.envelope import Answer, Envelopes
from slipstream.server.monitoring.values import to_json

NOT_CURRENT = "JetStream is not current with the meta leader"
_COUNTED_BY_LEADER = (
    "leafnodes",
    "in_msgs",
    "in_bytes",
    "in_client_msgs",
    "in_client_bytes",
    "out_msgs",
    "out_bytes",
    "out_client_msgs",
    "out_client_bytes",
    "slow_consumers",
    "stale_connections",
    "stalled_clients",
    "subscriptions",
)
# Of the leader's file, process or listeners alone.
_OF_LEADER = (
    "config_digest",
    "http_host",
    "http_port",
    "https_port",
    "http_base_path",
    "http_req_stats",
    "slow_consumer_stats",
    "stale_connection_stats",
    "disk_io_wait_stats",
    "tags",
    "metadata",
)


def known_followers(group: Group | None) -> Iterator[tuple[Member, ServerFacts]]:
    """The followers that are there, and have said what they are."""
    for member in group.followers if group is not None else ():
        if member.facts is not None and not member.is_offline:
            yield member, member.facts


class FollowerAnswers:
    """Answers for one follower."""

    def __init__(self, envelopes: Envelopes, member: Member, facts: ServerFacts) -> None:
        self._envelopes = envelopes
        self._monitor: Monitor = envelopes.monitor
        self._member = member
        self._facts = facts

    def find(self, what: str) -> Callable[[], Answer] | None:
        """Who answers requests of this kind; None if only the leader has something to say."""
        found: dict[str, Callable[[], Answer]] = {
            "STATSZ": lambda: {"statsz": self.statsz()},
            "VARZ": lambda: {"data": self.varz()},
            "HEALTHZ": lambda: {"data": self.healthz()},
            "JSZ": lambda: {"data": self.jsz()},
        }
        return found.get(what)

    def enveloped(self, answer: Answer) -> Answer:
        """As it is sent."""
        return {"server": self._envelopes.server_that_follows(self._member, self._facts), **answer}

    def identity(self) -> Answer:
        """The answer to IDZ."""
        facts = self._facts
        return {"name": self._member.name, "host": facts.host, "id": facts.server_id}

    def statsz(self) -> Answer:
        """What it uses, in the form of `$SYS`."""
        facts, nothing = self._facts, {"msgs": 0, "bytes": 0}
        group = self._group
        names = [group.server_name, *(one.name for one in group.followers if not one.is_offline)]
        others = [name for name in names if name != self._member.name]
        found: Answer = {
            "start": time_text(facts.start),
            "mem": facts.memory,
            "cores": facts.cores,
            "cpu": whole(facts.cpu),
            "connections": facts.connections,
            "total_connections": facts.connections_total,
            "active_accounts": 0,
            "subscriptions": 0,
            "sent": nothing,
            "sent_to_clients": nothing,
            "received": nothing,
            "received_from_clients": nothing,
            "slow_consumers": 0,
            "routes": [
                {"rid": rid, "name": name, "sent": nothing, "received": nothing, "pending": 0}
                for rid, name in enumerate(others, 1)
            ],
            "active_servers": online_of(group),
        }
        jetstream = jetstream_varz(self._monitor, with_store_dir=False)
        if jetstream:
            found["jetstream"] = self._without_memory(jetstream)
            del found["jetstream"]["meta"]["replicas"]  # as in nats-server: the leader has them
        found["gomaxprocs"] = facts.cores
        return found

    def varz(self) -> Answer:
        """The leader's settings, which are the group's, and what is true of this process."""
        monitor, facts = self._monitor, self._facts
        answer = {name: value for name, value in varz(monitor).items() if name not in _OF_LEADER}
        answer |= {
            "server_id": facts.server_id,
            "server_name": self._member.name,
            "host": facts.host,
            "port": facts.port,
            "jetstream": self._without_memory(jetstream_varz(monitor, with_store_dir=False)),
            "start": time_text(facts.start),
            "uptime": uptime_text(monitor.now - facts.start),
            "config_load_time": time_text(facts.start),
            "mem": facts.memory,
            "cores": facts.cores,
            "gomaxprocs": facts.cores,
            "cpu": whole(facts.cpu),
            "connections": facts.connections,
            "total_connections": facts.connections_total,
        }
        answer |= dict.fromkeys(_COUNTED_BY_LEADER, 0)
        if "config" in answer["jetstream"]:
            answer["jetstream"]["config"]["store_dir"] = facts.store_dir
        if facts.tags:
            answer["tags"] = list(facts.tags)
        if facts.metadata:
            answer["metadata"] = facts.metadata
        return answer

    def healthz(self) -> Answer:
        """Whether it has what the leader has."""
        if self._member.is_current:
            return {"status": "ok", "status_code": 200}
        return {"status": "unavailable", "status_code": 503, "error": NOT_CURRENT}

    def jsz(self) -> Answer:
        """What it has in files. Streams one by one are the leader's to show."""
        monitor = self._monitor
        answer = jsz(monitor, JszOptions())
        kept = [
            stream
            for account in monitor.engine.accounts.values()
            if account.jetstream is not None
            for stream in account.jetstream.streams.values()
            if stream.config.storage == "file"
        ]
        consumers = (one for stream in kept for one in stream.consumers.values())
        answer |= {
            "server_id": self._facts.server_id,
            "streams": len(kept),
            "consumers": sum(not one.config.mem_storage for one in consumers),
            "messages": sum(stream.log.messages for stream in kept),
            "bytes": sum(stream.log.bytes for stream in kept),
        }
        answer |= self._own_use(answer)
        if "config" in answer:
            del answer["config"]["store_dir"]
        if "meta_cluster" in answer:
            answer["meta_cluster"] = self._meta()
        return answer

    # -- parts of them -------------------------------------------------------------------------

    @property
    def _group(self) -> Group:
        group = self._monitor.engine.group
        assert group is not None
        return group

    def _without_memory(self, jetstream: Answer) -> Answer:
        if not jetstream:
            return jetstream
        stats = jetstream["stats"]
        return {**jetstream, "stats": {**stats, **self._own_use(stats)}, "meta": self._meta()}

    def _own_use(self, stats: Answer) -> Answer:
        """Memory streams are the leader's, and requests are answered there."""
        api = {**stats["api"], "total": 0, "errors": 0} if "api" in stats else {}
        return {"memory": 0, **({"api": api} if api else {})}

    def _meta(self) -> Answer:
        """The group: `replicas` are the other servers."""
        group = self._group
        others = [one for one in all_peer_infos(group) if one["name"] != self._member.name]
        return {**meta_cluster(self._monitor, group), "replicas": others}


def broadcast_followers(envelopes: Envelopes) -> None:
    """Send the statistics of all followers where theirs are listened to."""
    account = envelopes.monitor.engine.system_account
    for member, facts in known_followers(envelopes.monitor.engine.group):
        answers = FollowerAnswers(envelopes, member, facts)
        subject = f"$SYS.SERVER.{facts.server_id}.STATSZ".encode()
        if account.has_interest(subject):
            message = answers.enveloped({"statsz": answers.statsz()})
            account.send(subject, b"", b"", to_json(message, indent=0))
