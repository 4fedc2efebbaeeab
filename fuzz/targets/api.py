"""The JSON API: any body on any call is answered with JSON, alike in both builds."""

import json
from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, on_both

SECOND = 1_000_000_000
CALLS = (
    b"STREAM.CREATE.T", b"STREAM.UPDATE.S", b"CONSUMER.CREATE.S", b"CONSUMER.DURABLE.CREATE.S.D",
    b"CONSUMER.CREATE.S.D", b"CONSUMER.MSG.NEXT.S.C", b"STREAM.MSG.GET.S", b"STREAM.PURGE.S",
    b"STREAM.MSG.DELETE.S", b"STREAM.LIST", b"STREAM.NAMES", b"STREAM.INFO.S", b"CONSUMER.LIST.S",
    b"CONSUMER.NAMES.S", b"CONSUMER.INFO.S.C", b"CONSUMER.PAUSE.S.C", b"CONSUMER.DELETE.S.C",
    b"STREAM.DELETE.S", b"INFO", b"DIRECT.GET.S", b"CONSUMER.UNPIN.S.C", b"STREAM.SNAPSHOT.S",
    b"STREAM.RESTORE.S", b"CONSUMER.RESET.S.C", b"STREAM.LEADER.STEPDOWN.S", b"STREAM.TEMPLATE",
)  # fmt: skip
DICTIONARY = [
    b"2147483648", b"4294967296", b"9223372036854775808", b'"protocol":',
    b'"name":', b'"subjects":', b'["t.>"]', b'"retention":', b'"workqueue"', b'"interest"',
    b'"limits"', b'"storage":', b'"memory"', b'"max_msgs":', b'"max_bytes":', b'"max_age":',
    b'"max_msgs_per_subject":', b'"discard":', b'"new"', b'"duplicate_window":', b'"sources":',
    b'"mirror":', b'"republish":', b'"subject_transform":', b'{"src":">","dest":"x.>"}',
    b'"stream_name":"S"', b'"config":{', b'"durable_name":', b'"deliver_subject":', b'"in"',
    b'"deliver_policy":', b'"by_start_sequence"', b'"by_start_time"', b'"last_per_subject"',
    b'"opt_start_seq":', b'"opt_start_time":', b'"2026-01-01T00:00:00Z"', b'"ack_policy":',
    b'"explicit"', b'"none"', b'"all"', b'"ack_wait":', b'"backoff":', b'"max_deliver":',
    b'"filter_subject":', b'"filter_subjects":', b'"replay_policy":', b'"original"',
    b'"sample_freq":', b'"max_ack_pending":', b'"max_waiting":', b'"idle_heartbeat":',
    b'"flow_control":true', b'"headers_only":true', b'"inactive_threshold":', b'"num_replicas":',
    b'"mem_storage":true', b'"metadata":{', b'"priority_groups":', b'"priority_policy":',
    b'"pause_until":', b'"batch":', b'"expires":', b'"no_wait":true', b'"seq":', b'"keep":',
    b'"last_by_subj":', b'"next_by_subj":', b'"multi_last":', b'"up_to_time":', b'"start_time":',
    b'"offset":', b'"subject":', b"null", b"true", b"-1", b"9223372036854775807", b"1e3", b"[]",
    b"{}", b'"\\u0000"', b'"placement":{', b'"consumer_limits":{', b'"compression":"s2"',
    b'"first_seq":', b'"deny_delete":true', b'"sealed":true', b'"allow_rollup_hdrs":true',
    b'"action":"create"', b'"rate_limit_bps":', b'"deliver_group":', b'"max_batch":',
    b'"subject_delete_marker_ttl":', b'"allow_msg_ttl":true', b'"allow_msg_counter":true',
    b'"allow_atomic":true', b'"allow_msg_schedules":true', b'"persist_mode":"async"',
]  # fmt: skip


def seeds() -> list[bytes]:
    """A right request for most calls, and two after one another."""
    stream = (
        b'{"name":"T","subjects":["t.>"],"retention":"limits","max_msgs":10,"max_age":1000000000,'
        b'"storage":"file","discard":"new","duplicate_window":1000000,"republish":{"src":">",'
        b'"dest":"r.>"},"subject_transform":{"src":"t.*","dest":"t.{{wildcard(1)}}"}}'
    )
    consumer = (
        b'{"stream_name":"S","config":{"durable_name":"D","deliver_policy":"by_start_sequence",'
        b'"opt_start_seq":2,"ack_policy":"explicit","ack_wait":1000000000,"max_deliver":3,'
        b'"backoff":[1000000,2000000],"filter_subjects":["s.a","s.b.>"],"max_ack_pending":5}}'
    )
    push = (
        b'{"stream_name":"S","config":{"deliver_subject":"in","idle_heartbeat":1000000000,'
        b'"flow_control":true,"replay_policy":"original","opt_start_time":"2026-01-01T00:00:00Z",'
        b'"deliver_policy":"by_start_time","headers_only":true}}'
    )
    bodies = {
        0: stream, 1: b'{"name":"S","subjects":["s.>"],"max_msgs":1}', 2: push, 3: consumer,
        4: consumer, 5: b'{"batch":3,"expires":1000000000,"idle_heartbeat":1000000}',
        6: b'{"next_by_subj":"s.>","seq":1}', 7: b'{"filter":"s.a","keep":1}',
        8: b'{"seq":1,"no_erase":true}', 9: b'{"offset":0,"subject":"s.a"}', 11:
        b'{"subjects_filter":">","deleted_details":true}', 15: b'{"pause_until":'
        b'"2030-01-01T00:00:00Z"}', 19: b'{"multi_last":["s.>"],"up_to_seq":3}',
        20: b'{"group":"g"}',
    }  # fmt: skip
    alone = [bytes([call, 1]) + body for call, body in bodies.items()]
    return [*alone, *(bytes([call, 1]) for call in range(len(CALLS)))]


def make(plain: Build, compiled: Build) -> OneInput:
    """Ask an engine of each build."""
    return on_both(plain, compiled, "slipstream.testing.driver", "the answers of the API", ask)


def ask(module: Any, data: bytes) -> list[object]:
    """All answers to the one or two requests in `data`: the calls, then their bodies."""
    driver = module.Driver().start()
    client = driver.client()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_direct": True}
    client.api("STREAM.CREATE.S", config)
    for subject in ("s.a", "s.b.c", "s.a"):
        client.store(subject)
    durable = {"durable_name": "C", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    client.subscribe("in")
    client.take()
    choices = Choices(data)
    calls = [choices.pick(CALLS)]
    if choices.byte() % 2 == 0:
        calls.append(choices.pick(CALLS))
    bodies = choices.rest().split(b"\x1e", len(calls) - 1)
    found: list[object] = []
    for call, body in zip(calls, bodies, strict=False):
        inbox = b"_INBOX.t.%d" % len(found)
        client.send(b"PUB $JS.API.%b %b %d\r\n%b\r\n" % (call, inbox, len(body), body))
        answers = client.take()
        found.append([(answer.subject, answer.header, answer.body) for answer in answers])
        for answer in answers:
            if (
                answer.subject == inbox.decode()
                and answer.body
                and not call.startswith(_ANSWER_RAW)
            ):
                if not isinstance(json.loads(answer.body), dict):
                    raise Finding(f"{call!r} was answered with {answer.body!r}")
    driver.advance(2 * SECOND)
    client.publish("s.a", b"x", "_INBOX.t.end")
    found.append([(m.subject, m.reply, m.header, m.body) for m in client.take()])
    client.send(b"PING\r\n")
    client.take()
    if client.transport.closed or b"PONG" not in client.lines:
        raise Finding("the connection that asked is gone")
    found.append(client.errors)
    return found


_ANSWER_RAW = (b"DIRECT.GET", b"CONSUMER.MSG.NEXT")
