"""What an engine answers whose server leads a group (docs/group.md#what-clients-see)."""

import json
from typing import Any

import pytest

from slipstream.engine.jetstream.elected import ADVISORIES_PER_STEP, ELECTED_AFTER
from slipstream.engine.protocol.group import Member, peer_id
from slipstream.engine.protocol.options import EngineOptions
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.fix_group import FakeGroup

FOLLOWERS = [
    {"name": "n1", "current": True, "active": 1_000_000, "peer": "fjFyEjc1"},
    {"name": "n2", "current": True, "active": 2_000_000, "peer": "44jzkV9D"},
]
KEPT = {
    "name": "C",
    "leader": "n0",
    "leader_since": "2023-11-14T22:13:20Z",
    "replicas": FOLLOWERS,
}


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup()


@pytest.fixture
def driver(disk: SimulatedDisk, group: FakeGroup) -> Driver:
    """The engine of a server that leads `group`."""
    return lead(disk, group)


def lead(disk: SimulatedDisk, group: FakeGroup, **options: Any) -> Driver:
    wanted = EngineOptions(server_name="n0", jetstream=True, server_tags=["az:0"], **options)
    return Driver(disk, wanted, group=group).start()


def boss(driver: Driver) -> Client:
    """A client of the system account."""
    return driver.client(driver.engine.system_account)


def infos(client: Client, group_word: str = "INFO") -> list[Any]:
    client.take()
    lines = [line for line in client.lines if line.startswith(group_word.encode())]
    return [json.loads(line[5:]) for line in lines]


def heard(listener: Client) -> list[Message]:
    """The advisories that came; answers to other clients come to the same inbox."""
    return [message for message in listener.take() if message.subject.startswith("$JS.EVENT.")]


def refused(answer: Any) -> tuple[int, str]:
    return answer["error"]["err_code"], answer["error"]["description"]


# -- INFO ----------------------------------------------------------------------------------------


def test_clients_are_told_where_the_servers_are(driver: Driver) -> None:
    (first,) = infos(driver.client())
    assert (first["cluster"], first["jetstream"]) == ("C", True)
    assert first["connect_urls"] == ["n0:4222", "n1:4222", "n2:4222"]


def test_clients_that_know_the_word_hear_of_a_change_once(driver: Driver, group: FakeGroup) -> None:
    new, old = driver.client(protocol=1), driver.client()
    for client in (new, old):
        client.send(b"PING\r\n")
        client.take()
        client.lines.clear()
    group.client_urls = ["n0:4222", "n3:4222"]
    for _ in range(2):
        driver.engine.group_changed()
        driver.finish()
    assert [info["connect_urls"] for info in infos(new)] == [["n0:4222", "n3:4222"]]
    assert infos(old) == []


def test_a_client_that_connects_meanwhile_costs_the_others_no_news(
    driver: Driver, group: FakeGroup
) -> None:
    client = driver.client(protocol=1)
    client.send(b"PING\r\n")
    infos(client)
    client.lines.clear()
    group.client_urls = ["n0:4222"]
    driver.client()
    driver.engine.group_changed()
    driver.finish()
    assert [info["connect_urls"] for info in infos(client)] == [["n0:4222"]]


def test_a_server_that_is_about_to_stop_names_the_others(driver: Driver) -> None:
    client = driver.client(protocol=1)
    driver.engine.start_lame_duck()
    driver.finish()
    last = infos(client)[-1]
    assert (last["ldm"], last["connect_urls"]) == (True, ["n1:4222", "n2:4222"])


def test_a_server_by_itself_names_no_cluster() -> None:
    (first,) = infos(Driver().start().client())
    assert not {"cluster", "connect_urls"} & first.keys()


# -- streams and consumers -----------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
def test_each_answer_about_a_stream_names_all_servers(driver: Driver, replicas: int) -> None:
    client = driver.client()
    config = {"name": "S", "num_replicas": replicas}
    answers = [client.api(f"STREAM.{call}.S", config) for call in ("CREATE", "UPDATE")]
    answers += [client.api("STREAM.INFO.S"), *client.api("STREAM.LIST")["streams"]]
    assert [answer["cluster"] for answer in answers] == [KEPT] * 4
    assert {answer["config"]["num_replicas"] for answer in answers} == {replicas or 1}


@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
def test_each_answer_about_a_consumer_names_all_servers(driver: Driver, replicas: int) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    config = {"durable_name": "C", "num_replicas": replicas}
    answers = [client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})]
    answers += [client.api("CONSUMER.INFO.S.C"), *client.api("CONSUMER.LIST.S")["consumers"]]
    assert [answer["cluster"] for answer in answers] == [KEPT] * 3
    assert {answer["config"]["num_replicas"] for answer in answers} == {replicas}


def test_what_is_in_memory_is_on_the_leader_alone(driver: Driver) -> None:
    client = driver.client()
    made = client.api("STREAM.CREATE.M", {"name": "M", "storage": "memory"})
    assert made["cluster"] == {"name": "C", "leader": "n0"}
    config = {"name": "M", "storage": "memory", "num_replicas": 3}
    code, text = refused(client.api("STREAM.UPDATE.M", config))
    assert (code, text.partition(",")[0]) == (10005, "no suitable peers for placement")


def test_followers_that_lag_or_are_away_are_shown_so(driver: Driver, group: FakeGroup) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    group.followers = [
        Member("n1", is_current=False, lag=7),
        Member("n2", is_current=False, is_offline=True, active=SECOND, lag=9),
    ]
    assert client.api("STREAM.INFO.S")["cluster"]["replicas"] == [
        {"name": "n1", "current": False, "active": 0, "lag": 7, "peer": peer_id("n1")},
        {
            "name": "n2",
            "current": False,
            "offline": True,
            "active": SECOND,
            "lag": 9,
            "peer": peer_id("n2"),
        },
    ]


def test_more_replicas_than_servers_are_refused(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    for call in ("CREATE.T", "UPDATE.S"):
        config = {"name": call[-1], "num_replicas": 4}
        assert refused(client.api(f"STREAM.{call}", config)) == (
            10005,
            "no suitable peers for placement",
        )
    config = {"durable_name": "C", "num_replicas": 4}
    answer = client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    assert refused(answer) == (10126, "consumer config replica count exceeds parent stream")


def test_a_stream_is_changed_also_where_the_group_has_become_smaller(
    driver: Driver, group: FakeGroup
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    group.followers = group.followers[:1]
    config = {"name": "S", "num_replicas": 3, "max_msgs": 5}
    assert client.api("STREAM.UPDATE.S", config)["config"]["max_msgs"] == 5


@pytest.mark.parametrize(
    ("placement", "replicas", "text"),
    [
        ({"cluster": "C"}, 3, ""),
        ({"cluster": "X"}, 1, "no suitable peers for placement"),
        ({"tags": ["az:0"]}, 1, ""),
        ({"tags": ["AZ:1"]}, 1, ""),
        ({"tags": ["az:9"]}, 1, "no suitable peers for placement, tags not matched ['az:9']"),
        ({"tags": ["az:0"]}, 2, "no suitable peers for placement, tags not matched ['az:0']"),
        ({"tags": ["!az:0"]}, 2, ""),
        ({"tags": ["!az:0"]}, 3, "no suitable peers for placement, tags excluded ['az:0']"),
    ],
)
def test_a_placement_has_to_fit(
    driver: Driver, group: FakeGroup, placement: dict[str, Any], replicas: int, text: str
) -> None:
    group.followers = [Member("n1", tags=("az:1",)), Member("n2", tags=("az:2",))]
    config = {"name": "S", "placement": placement, "num_replicas": replicas}
    answer = driver.client().api("STREAM.CREATE.S", config)
    if text:
        assert refused(answer) == (10005, text)
    else:
        assert answer["config"]["placement"] == placement


def test_an_ephemeral_consumer_is_on_the_leader_alone(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
    made = client.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": {}})
    assert made["cluster"] == {"name": "C", "leader": "n0"}


def test_why_names_the_servers_that_a_majority_lacks(driver: Driver, group: FakeGroup) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    away = {"is_offline": True, "active": 12 * SECOND}
    group.followers = [Member("n1", **away), Member("n2", **away)]
    driver.runner.hold()
    client.publish("S", b"x")
    why = client.request("$SLIPSTREAM.CONSUMER.EXPLAIN.S.C").json()
    texts = {one["code"]: one["text"] for one in why["reasons"]}
    assert texts["nothing_pending"] == "Nothing is pending: stream S holds no messages."
    assert texts["syncing"] == (
        "1 message of the stream is not on the disks of a majority of the 3 servers yet; what of "
        "that is for it is delivered then. There is no majority: n1 and n2 have not answered for "
        "12.00s."
    )


def test_why_names_nobody_whose_copy_does_not_count(driver: Driver, group: FakeGroup) -> None:
    """As where one of two goes on alone."""
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    away = Member("n1", is_current=False, is_offline=True, active=12 * SECOND, is_needed=False)
    group.followers = [away]
    driver.runner.hold()
    client.publish("S", b"x")
    why = client.request("$SLIPSTREAM.CONSUMER.EXPLAIN.S.C").json()
    (text,) = [one["text"] for one in why["reasons"] if one["code"] == "syncing"]
    assert text.startswith("1 message of the stream is not on disk yet")
    assert "n1" not in text


def test_a_stream_is_restored_with_its_replicas(driver: Driver) -> None:
    client = driver.client()
    asked = {"config": {"name": "S", "num_replicas": 3}}
    assert client.api("STREAM.RESTORE.S", asked)["deliver_subject"]
    asked = {"config": {"name": "T", "num_replicas": 4}}
    assert refused(client.api("STREAM.RESTORE.T", asked))[0] == 10005


# -- step-downs ----------------------------------------------------------------------------------


@pytest.fixture
def client(driver: Driver) -> Client:
    """A client where there is a stream S with a consumer C."""
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    return client


CALLS = ["STREAM.LEADER.STEPDOWN.S", "CONSUMER.LEADER.STEPDOWN.S.C", "META.LEADER.STEPDOWN"]


@pytest.mark.parametrize("call", CALLS)
def test_whatever_is_to_have_another_leader_the_group_gets_one(
    driver: Driver, client: Client, group: FakeGroup, call: str
) -> None:
    asker = boss(driver) if call.startswith("META") else client
    group.followers = [Member("n1", tags=("az:1",)), Member("n2", tags=("az:2",))]
    bodies: list[Any] = [b"", b"no JSON", {}, {"placement": {}}, {"placement": {"cluster": "C"}}]
    bodies += [{"placement": {"preferred": "n2"}}, {"placement": {"tags": ["az:1"]}}]
    for body in bodies:
        answer = asker.api(call, body)
        assert answer["success"] is True
        assert answer["type"].endswith("_leader_stepdown_response")
    assert group.asked == ["", "", "", "", "", "n2", "n1"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"placement": {"preferred": "zz"}}, (10005, 'preferred server "zz" not known')),
        ({"placement": {"preferred": "n0"}}, (10005, 'preferred server "n0" is already leader')),
        ({"placement": {"cluster": "X"}}, (10005, "no replacement peer connected")),
        ({"placement": {"tags": ["az:9"]}}, (10005, "no replacement peer connected")),
        ({"x": 1}, (10025, 'invalid JSON: json: unknown field "x"')),
    ],
)
def test_a_leader_that_cannot_be_is_refused(
    driver: Driver, client: Client, group: FakeGroup, call: str, body: Any, error: tuple[int, str]
) -> None:
    asker = boss(driver) if call.startswith("META") else client
    assert refused(asker.api(call, body)) == error
    assert group.asked == []


def test_the_groups_reason_is_told(client: Client, group: FakeGroup) -> None:
    group.refusal = "n1 and n2 are behind: try again later"
    assert refused(client.api("STREAM.LEADER.STEPDOWN.S")) == (10005, group.refusal)


def test_what_is_not_there_has_no_leader(client: Client, group: FakeGroup) -> None:
    assert refused(client.api("STREAM.LEADER.STEPDOWN.T"))[0] == 10059
    assert refused(client.api("CONSUMER.LEADER.STEPDOWN.S.D"))[0] == 10014
    assert group.asked == []


def test_only_the_system_account_moves_the_leader_of_all(client: Client, group: FakeGroup) -> None:
    assert client.ask("$JS.API.META.LEADER.STEPDOWN") == []
    assert group.asked == []


@pytest.mark.parametrize("call", ["STREAM.PEER.REMOVE.S", "CONSUMER.PEER.REMOVE.S.C"])
def test_no_server_can_give_up_a_copy(client: Client, call: str) -> None:
    assert refused(client.api(call, {"peer": "n1"})) == (10075, "peer remap failed")
    assert refused(client.api(call, {"peer": peer_id("n0")})) == (10075, "peer remap failed")
    assert refused(client.api(call, {"peer": "zz"})) == (10040, "peer not a member")
    assert refused(client.api(call)) == (10003, "bad request")


@pytest.mark.parametrize("asked", [{"peer": "n1"}, {"peer_id": peer_id("n1")}])
def test_a_server_is_removed(driver: Driver, group: FakeGroup, asked: dict[str, str]) -> None:
    answer = boss(driver).api("SERVER.REMOVE", asked)
    assert answer["success"] is True
    assert answer["type"] == "io.nats.jetstream.api.v1.meta_server_remove_response"
    assert [member.name for member in group.followers] == ["n2"]


def test_a_server_that_cannot_be_removed_stays(driver: Driver, group: FakeGroup) -> None:
    asker = boss(driver)
    unknown = (10044, "server is not a member of the cluster")
    assert refused(asker.api("SERVER.REMOVE", {"peer": "zz"})) == unknown
    group.refusal = "n0 leads the group: have it hand over before it leaves"
    assert refused(asker.api("SERVER.REMOVE", {"peer": "n0"})) == (10005, group.refusal)
    said = (10036, "not currently supported in clustered mode")
    assert refused(asker.api("SERVER.EVACUATE", {"peer": "n1"})) == said
    assert len(group.followers) == 2


# -- advisories ----------------------------------------------------------------------------------


def test_a_new_leader_says_so_once_clients_are_back(disk: SimulatedDisk, group: FakeGroup) -> None:
    before = lead(disk, group)
    client = before.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    client.api("STREAM.CREATE.M", {"name": "M", "storage": "memory"})
    client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    before.engine.close()

    driver = lead(disk, group)
    listener, chief = driver.client(), boss(driver)
    for each in (listener, chief):
        each.subscribe("$JS.EVENT.ADVISORY.>")
    driver.advance(ELECTED_AFTER + SECOND)
    leader = {"leader": "n0", "replicas": [{"name": "n0", "current": True, "active": 0,
                                            "peer": "6DVFpukC"}, *FOLLOWERS]}  # fmt: skip
    told = {message.subject.removeprefix("$JS.EVENT.ADVISORY."): message.json()
            for message in heard(listener)}  # fmt: skip
    assert told.keys() == {"STREAM.LEADER_ELECTED.S", "CONSUMER.LEADER_ELECTED.S.C"}
    stream, consumer = told.values()
    assert stream["type"] == "io.nats.jetstream.advisory.v1.stream_leader_elected"
    assert consumer["type"] == "io.nats.jetstream.advisory.v1.consumer_leader_elected"
    head = ("type", "id", "timestamp")
    assert {k: v for k, v in stream.items() if k not in head} == {"stream": "S", **leader}
    assert consumer.items() >= {"stream": "S", "consumer": "C", "leader": "n0"}.items()

    told_chief = {message.subject.removeprefix("$JS.EVENT.ADVISORY."): message.json()
             for message in heard(chief)}  # fmt: skip
    assert told_chief.keys() == {"DOMAIN.LEADER_ELECTED", *told}
    assert told_chief["STREAM.LEADER_ELECTED.S"]["account"] == "$G"
    domain = told_chief["DOMAIN.LEADER_ELECTED"]
    assert (domain["leader"], domain["cluster"]) == ("6DVFpukC", "C")


def test_many_consumers_are_told_of_a_part_at_a_time(disk: SimulatedDisk, group: FakeGroup) -> None:
    driver = lead(disk, group)
    client, listener = driver.client(), driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    for number in range(2 * ADVISORIES_PER_STEP):
        config = {"durable_name": f"C{number}"}
        client.api(f"CONSUMER.CREATE.S.C{number}", {"stream_name": "S", "config": config})
    listener.subscribe("$JS.EVENT.ADVISORY.*.LEADER_ELECTED.>")
    driver.advance(ELECTED_AFTER)
    assert len(heard(listener)) == ADVISORIES_PER_STEP
    driver.advance(SECOND)
    assert len(heard(listener)) == ADVISORIES_PER_STEP + 1


def test_the_audit_of_a_call_names_the_cluster(driver: Driver) -> None:
    listener = driver.client()
    listener.subscribe("$JS.EVENT.ADVISORY.API")
    driver.client().api("INFO")
    (told,) = heard(listener)
    assert told.json()["client"]["cluster"] == "C"
