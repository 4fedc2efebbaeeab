"""Streams through their API: what may be, what may change, how it looks
(docs/protocol/streams.md#configuration)."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.protocol.options import EngineOptions, JetStreamLimits
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

MS = 1_000_000
SECOND = 1_000_000_000


def refusal(answer: dict[str, Any]) -> tuple[int, int, str]:
    """Code, err_code and description of an error."""
    error = answer["error"]
    return error["code"], error["err_code"], error["description"]


def create(client: Client, **config: Any) -> dict[str, Any]:
    """Create stream S."""
    answer: dict[str, Any] = client.api("STREAM.CREATE.S", {"name": "S", **config})
    return answer


def update(client: Client, **config: Any) -> dict[str, Any]:
    """Update stream S."""
    answer: dict[str, Any] = client.api("STREAM.UPDATE.S", {"name": "S", **config})
    return answer


def test_a_new_stream_is_shown_with_everything_filled_in(client: Client) -> None:
    answer = create(client)
    metadata = answer["config"].pop("metadata")
    assert set(metadata) == {"_nats.ver", "_nats.level", "_nats.req.level"}
    assert answer == {
        "type": "io.nats.jetstream.api.v1.stream_create_response",
        "config": {
            "name": "S",
            "subjects": ["S"],
            "retention": "limits",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "discard": "old",
            "storage": "file",
            "num_replicas": 1,
            "duplicate_window": 120 * SECOND,
            "compression": "none",
            "allow_direct": False,
            "mirror_direct": False,
            "sealed": False,
            "deny_delete": False,
            "deny_purge": False,
            "allow_rollup_hdrs": False,
            "consumer_limits": {},
            "allow_msg_ttl": False,
        },
        "created": "2023-11-14T22:13:20Z",
        "state": {
            "messages": 0,
            "bytes": 0,
            "first_seq": 0,
            "first_ts": "0001-01-01T00:00:00Z",
            "last_seq": 0,
            "last_ts": "0001-01-01T00:00:00Z",
            "consumer_count": 0,
        },
        "ts": "2023-11-14T22:13:20Z",
        "did_create": True,
    }


def test_the_order_of_an_answers_keys_is_that_of_nats_server(client: Client) -> None:
    body = client.request("$JS.API.STREAM.CREATE.S", {"name": "S"}).body
    assert body.startswith(b'{"type":"io.nats.jetstream.api.v1.stream_create_response","config":{')
    error = client.request("$JS.API.STREAM.INFO.NO").body
    assert error == (
        b'{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":404,'
        b'"err_code":10059,"description":"stream not found"},"total":0,"offset":0,"limit":0}'
    )
    metadata = {"b": "1", "_z": "2", "A": "3"}
    stream = client.api("STREAM.CREATE.M", {"name": "M", "metadata": metadata})
    asked = {"durable_name": "d", "ack_policy": "explicit", "metadata": metadata}
    request = {"stream_name": "M", "config": asked}
    consumer = client.api("CONSUMER.DURABLE.CREATE.M.d", request)
    names = ["A", "_nats.level", "_nats.req.level", "_nats.ver", "_z", "b"]
    assert list(stream["config"]["metadata"]) == names
    assert list(consumer["config"]["metadata"]) == names


def test_the_same_stream_may_be_created_again_and_another_one_may_not(client: Client) -> None:
    create(client, max_msgs=5)
    assert create(client, max_msgs=5)["did_create"] is True
    assert refusal(create(client, max_msgs=6)) == (
        400, 10058, "stream name already in use with a different configuration",
    )  # fmt: skip


STREAM_ERRORS: list[tuple[dict[str, Any], tuple[int, int, str]]] = [
    ({"name": "T"}, (400, 10056, "stream name in subject does not match request")),
    ({"bogus": 1}, (400, 10025, 'invalid JSON: json: unknown field "bogus"')),
    ({"retention": "x"}, (400, 10025, 'invalid JSON: can not unmarshal "\\"x\\""')),
    ({"storage": None}, (400, 10025, 'invalid JSON: can not unmarshal "null"')),
    ({"compression": "zip"}, (400, 10025, "invalid JSON: unknown compression algorithm")),
    ({"sealed": True}, (500, 10052, "stream configuration for create can not be sealed")),
    (
        {"mirror_direct": True},
        (500, 10052, "stream has no mirror but does have mirror direct"),
    ),
    (
        {"description": "d" * 4097},
        (500, 10052, "stream description is too long, maximum allowed is 4096"),
    ),
    (
        {"metadata": {"k": "v" * 131_072}},
        (500, 10052, "stream metadata exceeds maximum size of 131072 bytes"),
    ),
    ({"num_replicas": 6}, (500, 10052, "maximum replicas is 5")),
    ({"num_replicas": -1}, (400, 10133, "replicas count cannot be negative")),
    (
        {"num_replicas": 3},
        (500, 10074, "replicas > 1 not supported in non-clustered mode"),
    ),
    (
        {"pedantic": True, "max_msgs": -2},
        (400, 10157, "pedantic mode: max_msgs must be set to -1"),
    ),
    ({"max_age": -1}, (500, 10052, "max age can not be negative")),
    ({"max_age": 99 * MS}, (500, 10052, "max age needs to be >= 100ms")),
    (
        {"pedantic": True, "max_age": SECOND},
        (400, 10157, "pedantic mode: duplicate window cannot be bigger than max age"),
    ),
    ({"duplicate_window": -1}, (500, 10052, "duplicates window can not be negative")),
    (
        {"max_age": SECOND, "duplicate_window": 2 * SECOND},
        (500, 10052, "duplicates window can not be larger then max age"),
    ),
    ({"duplicate_window": 99 * MS}, (500, 10052, "duplicates window needs to be >= 100ms")),
    (
        {"deny_purge": True, "allow_rollup_hdrs": True},
        (500, 10052, "roll-ups require the purge permission"),
    ),
    (
        {"discard_new_per_subject": True},
        (500, 10052, "discard new per subject requires discard new policy to be set"),
    ),
    (
        {"discard": "new", "discard_new_per_subject": True},
        (500, 10052, "discard new per subject requires max msgs per subject > 0"),
    ),
    (
        {"persist_mode": "async", "storage": "memory"},
        (500, 10052, "async persist mode is only supported on file storage"),
    ),
    ({"subjects": ["a..b"]}, (500, 10052, "invalid subject")),
    ({"subjects": ["a.*", "a.b"]}, (500, 10052, 'subject "a.*" overlaps with "a.b"')),
    (
        {"subjects": [">"]},
        (500, 10052, "capturing all subjects requires no-ack to be true"),
    ),
    (
        {"subjects": ["$JS.API.>"]},
        (500, 10052, "subjects that overlap with jetstream api require no-ack to be true"),
    ),
    (
        {"subjects": ["$SYS.x"]},
        (500, 10052, "subjects that overlap with system api require no-ack to be true"),
    ),
    (
        {"subject_transform": {"src": "a..b", "dest": "c"}},
        (400, 10155, "stream transform source: invalid subject a..b"),
    ),
    (
        {"subject_transform": {"src": "a.*", "dest": "b.{{wildcard(2)}}"}},
        (
            400, 10156,
            "stream transform: invalid mapping destination: "
            "wildcard index out of range in {{wildcard(2)}}: [2]",
        ),
    ),
    (
        {"republish": {"src": ">", "dest": "S"}},
        (500, 10052, "stream configuration for republish destination forms a cycle"),
    ),
    (
        {"republish": {"src": "a.*", "dest": "b.>"}},
        (
            500, 10052,
            "stream configuration for republish with transform from 'a.*' to 'b.>' not valid",
        ),
    ),
    (
        {"placement": {"preferred": "x"}},
        (500, 10052, "preferred server not permitted in placement"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "error"), STREAM_ERRORS)
def test_a_configuration_that_can_not_be_is_refused_in_nats_servers_words(
    client: Client, config: dict[str, Any], error: tuple[int, int, str]
) -> None:
    assert refusal(create(client, **config)) == error
    assert client.api("INFO")["streams"] == 0


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a*", 10052), ("a>", 10052), ("a b", 10056), ("x" * 256, 10052), ("a/b", 10128),
        ("a\\b", 10128), ("x" * 255, 0), ("$x", 0), ("ü", 0),
    ],
)  # fmt: skip
def test_a_name_has_no_blank_wildcard_or_path(client: Client, name: str, error: int) -> None:
    answer = client.api(f"STREAM.CREATE.{name.replace(' ', '_')}", {"name": name})
    assert answer.get("error", {}).get("err_code", 0) == error


def test_no_two_streams_take_the_same_subject(client: Client) -> None:
    client.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
    assert refusal(create(client, subjects=["x", "a.*.c"])) == (
        400, 10065, "subjects overlap with an existing stream",
    )  # fmt: skip
    create(client, subjects=["b"])
    assert refusal(update(client, subjects=["a.b"]))[1] == 10065


def test_the_server_bounds_duplicate_windows() -> None:
    limits = JetStreamLimits(duplicate_window=60 * SECOND)
    client = Driver(options=EngineOptions(jetstream=True, jetstream_limits=limits)).start().client()
    assert create(client)["config"]["duplicate_window"] == 60 * SECOND
    client.api("STREAM.DELETE.S")
    assert refusal(create(client, duplicate_window=61 * SECOND)) == (
        500, 10052, "duplicates window can not be larger then server limit of 1m0s",
    )  # fmt: skip


# -- updates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({}, {"storage": "memory"}, "can not change storage type"),
        ({}, {"retention": "workqueue"}, "can not change retention policy to/from workqueue"),
        (
            {"retention": "workqueue"}, {"retention": "limits"},
            "can not change retention policy to/from workqueue",
        ),
        ({"deny_delete": True}, {}, "can not cancel deny message deletes"),
        ({"deny_purge": True}, {}, "can not cancel deny purge"),
        ({}, {"persist_mode": "async"}, "can not change persist mode"),
    ],
)  # fmt: skip
def test_what_is_fixed_at_creation_stays(
    client: Client, before: dict[str, Any], after: dict[str, Any], text: str
) -> None:
    create(client, **before)
    assert refusal(update(client, **after)) == (
        500, 10052, f"stream configuration update {text}",
    )  # fmt: skip


def test_the_configuration_is_looked_at_before_the_stream_is_looked_for(client: Client) -> None:
    assert refusal(update(client, max_age=1))[1] == 10052
    assert refusal(update(client))[1] == 10059


def test_sealing_stops_everything_but_reading_for_good(client: Client) -> None:
    create(client)
    client.store("S")
    config = update(client, sealed=True, max_age=SECOND, allow_rollup_hdrs=True)["config"]
    assert config["max_age"] == 0
    assert config["discard"] == "new"
    assert config["deny_delete"]
    assert config["deny_purge"]
    assert not config["allow_rollup_hdrs"]
    sealed = (400, 10109, "invalid operation on sealed stream")
    assert refusal(client.store("S")) == sealed
    assert refusal(client.api("STREAM.PURGE.S")) == sealed
    assert refusal(client.api("STREAM.MSG.DELETE.S", {"seq": 1})) == sealed
    assert client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["seq"] == 1
    assert refusal(update(client, deny_delete=True, deny_purge=True)) == (
        500, 10052, "stream configuration update can not unseal a sealed stream",
    )  # fmt: skip


def test_changed_subjects_count_from_then_on(client: Client) -> None:
    create(client, subjects=["a"])
    update(client, subjects=["b"])
    assert client.request("a").status == "503"
    assert client.store("b")["seq"] == 1


def test_an_update_without_subjects_goes_back_to_the_name(client: Client) -> None:
    create(client, subjects=["a"])
    assert update(client)["config"]["subjects"] == ["S"]


# -- showing -----------------------------------------------------------------------------------


def test_names_and_lists_come_in_pages_in_order(client: Client) -> None:
    for i in range(300):
        client.api(f"STREAM.CREATE.S{i:03}", {"name": f"S{i:03}", "storage": "memory"})
    names = client.api("STREAM.NAMES", {"offset": 299})
    assert (names["total"], names["offset"], names["limit"]) == (300, 299, 1024)
    assert names["streams"] == ["S299"]
    first = client.api("STREAM.LIST")
    assert (first["total"], first["offset"], first["limit"]) == (300, 0, 256)
    assert len(first["streams"]) == 256
    second = client.api("STREAM.LIST", {"offset": 256})
    names_of = [stream["config"]["name"] for stream in first["streams"] + second["streams"]]
    assert names_of == sorted(names_of)
    assert len(set(names_of)) == 300
    assert client.api("STREAM.NAMES", {"offset": 1000})["offset"] == 300


def test_lists_can_be_narrowed_to_streams_that_take_a_subject(client: Client) -> None:
    for name, subject in (("A", "a.*"), ("B", "b"), ("C", "a.x.y")):
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
    assert client.api("STREAM.NAMES", {"subject": "a.>"})["streams"] == ["A", "C"]
    assert client.api("STREAM.NAMES", {"subject": "b"})["streams"] == ["B"]
    assert client.api("STREAM.NAMES", {"subject": "zzz"})["streams"] is None
    assert client.api("STREAM.LIST", {"subject": "zzz"})["streams"] == []


def test_info_shows_what_was_deleted_and_counts_subjects_on_demand(client: Client) -> None:
    create(client, subjects=["s.>"])
    for i in range(6):
        client.store(f"s.{i % 3}")
    for seq in (1, 3, 5):
        client.api("STREAM.MSG.DELETE.S", {"seq": seq})
    plain = client.api("STREAM.INFO.S")["state"]
    assert (plain["num_deleted"], plain["num_subjects"]) == (2, 3)
    assert "deleted" not in plain
    assert "subjects" not in plain
    asked = {"deleted_details": True, "subjects_filter": "s.*"}
    answer = client.api("STREAM.INFO.S", asked)
    assert answer["state"]["deleted"] == [3, 5]
    assert answer["state"]["subjects"] == {"s.0": 1, "s.1": 1, "s.2": 1}
    assert (answer["total"], answer["offset"], answer["limit"]) == (3, 0, 100_000)
    assert answer["cluster"] == {"leader": "here"}


def test_a_file_stream_counts_bytes_as_nats_server_does(client: Client) -> None:
    create(client)
    client.store("S", b"x" * 10)
    assert client.api("STREAM.INFO.S")["state"]["bytes"] == 16 + 1 + 10  # memory: no store here


def test_unknown_fields_are_passed_over_where_the_server_is_not_strict() -> None:
    driver = Driver(options=EngineOptions(jetstream=True, strict=False)).start()
    client = driver.client()
    answer = create(client, bogus=1, republish={"dest": "r", "src": "S", "bogus": 2})
    assert answer["config"]["republish"] == {"src": "S", "dest": "r"}
    assert "error" not in client.api("STREAM.NAMES", {"bogus": 1})


# -- the domain --------------------------------------------------------------------------------


@pytest.fixture
def domain_client() -> Client:
    """A client of a server in the domain "hub"."""
    return Driver(options=EngineOptions(jetstream=True, domain="hub")).start().client()


def test_calls_under_the_domains_prefix_are_the_same_calls(domain_client: Client) -> None:
    request = domain_client.request
    created = request("$JS.hub.API.STREAM.CREATE.S", {"name": "S", "allow_direct": True}).json()
    assert created["config"]["name"] == "S"
    assert request("$JS.hub.API.STREAM.INFO.S").json()["domain"] == "hub"
    assert request("$JS.API.INFO").json()["domain"] == "hub"
    assert domain_client.store("S") == {"stream": "S", "domain": "hub", "seq": 1}
    assert request("$JS.hub.API.DIRECT.GET.S", {"seq": 1}).body == b"x"
    assert request("$JS.hub.API.DIRECT.GET.NO", {"seq": 1}).status == "503"
    assert request("$JS.other.API.INFO").status == "503"
    assert domain_client.session.engine.options.domain == "hub"


def test_key_value_traffic_under_the_domains_prefix_is_stored(domain_client: Client) -> None:
    config = {"name": "KV_b", "subjects": ["$KV.b.>"]}
    domain_client.api("STREAM.CREATE.KV_b", config)
    answer = domain_client.request("$JS.hub.API.$KV.b.key", b"value").json()
    assert answer == {"stream": "KV_b", "domain": "hub", "seq": 1}
    got = domain_client.api("STREAM.MSG.GET.KV_b", {"seq": 1})
    assert got["message"]["subject"] == "$KV.b.key"


def test_a_stream_goes_in_one_step_however_many_consumers_it_has() -> None:
    syncs = set()
    for consumers in (1, 40):
        disk = SimulatedDisk(Random(1))
        driver = Driver(disk).start()
        client = driver.client()
        create(client)
        for number in range(consumers):
            config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
            body = {"stream_name": "S", "config": config}
            assert "error" not in client.api(f"CONSUMER.CREATE.S.c{number}", body)
        before = disk.calls["sync_dir"]
        assert client.api("STREAM.DELETE.S")["success"] is True
        syncs.add(disk.calls["sync_dir"] - before)
        assert not [path for path in disk.files() if "/S/" in path]
        driver.stop()
    assert len(syncs) == 1
