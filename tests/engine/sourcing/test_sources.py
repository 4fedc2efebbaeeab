"""A stream gathers the messages of its sources, each once and in its source's order."""

from typing import Any

import pytest

from slipstream.model.durations import SECOND
from tests.engine.sourcing.conftest import World

ORIGIN = "Nats-Stream-Source"


def numbers(first: int, last: int) -> list[bytes]:
    """The bodies that `World.publish` stores."""
    return [b"%d" % n for n in range(first, last + 1)]


def gathered(world: World, name: str = "S") -> dict[str, list[bytes]]:
    """The bodies in a stream, by the source that they came from ("": published to it)."""
    found: dict[str, list[bytes]] = {}
    for seq, _, body, _ in world.contents(name):
        origin = world.get(name, seq)["headers"].get(ORIGIN, "")
        found.setdefault(origin.split(" ")[0], []).append(body)
    return found


def two_sources(world: World, **config: Any) -> None:
    """A stream S that gathers A and B, of five messages each, and has a subject of its own."""
    for name in ("A", "B"):
        world.create(name, subjects=[f"{name.lower()}.>"])
        world.publish(f"{name.lower()}.x", 1, 5)
    world.create("S", subjects=["s.>"], sources=[{"name": "A"}, {"name": "B"}], **config)
    world.settle()


def test_a_stream_gathers_its_sources_beside_what_it_is_published(world: World) -> None:
    two_sources(world)
    world.publish("s.own", 1, 2)
    world.publish("a.y", 6, 7)
    assert gathered(world) == {"A": numbers(1, 7), "B": numbers(1, 5), "": numbers(1, 2)}
    state = world.info("S")["state"]
    assert (state["first_seq"], state["last_seq"]) == (1, 14)


def test_a_message_says_where_it_came_from(world: World) -> None:
    two_sources(world)
    origins = {world.get("S", seq)["headers"][ORIGIN] for seq in range(1, 11)}
    last_of_a = next(o for o in origins if o.startswith("A 5 "))
    name, seq, filters, dests, subject, identity = last_of_a.split(" ")
    assert (name, seq, filters, dests, subject) == ("A", "5", ">", ">", "a.x")
    assert len(identity) == 8


def test_an_origin_is_that_of_the_last_stream(world: World) -> None:
    two_sources(world)
    world.create("T", sources=[{"name": "S"}])
    world.settle()
    origins = [world.get("T", seq)["headers"][ORIGIN] for seq in (1, 10)]
    assert [origin.split(" ")[:2] for origin in origins] == [["S", "1"], ["S", "10"]]


def test_each_source_shows_its_lag_and_the_last_sequence_taken(world: World) -> None:
    answer = world.create("S", sources=[{"name": "A"}, {"name": "B", "filter_subject": "b.x"}])
    assert answer["sources"] == [
        {"name": "A", "lag": 0, "active": -1},
        {"name": "B", "lag": 0, "active": -1, "filter_subject": "b.x"},
    ]
    world.create("A", subjects=["a.>"])
    world.publish("a.x", 1, 3)
    world.settle(120)
    shown_a, shown_b = world.info("S")["sources"]
    assert 0 <= shown_a.pop("active") <= SECOND  # a heartbeat has come since
    assert shown_a == {"name": "A", "lag": 0, "seq": 3}
    assert shown_b["error"]["err_code"] == 10059


@pytest.mark.parametrize("crashes", [True, False])
def test_sources_go_on_after_a_restart_where_their_last_message_says(
    world: World, crashes: bool
) -> None:
    two_sources(world)
    world.publish("s.own", 1, 2)
    if crashes:
        world.crash()
    else:
        world.restart()
    world.publish("a.y", 6, 7)
    world.settle()
    assert gathered(world) == {"A": numbers(1, 7), "B": numbers(1, 5), "": numbers(1, 2)}


def test_a_source_whose_messages_are_far_back_is_found(world: World) -> None:
    two_sources(world)
    world.publish("s.own", 1, 3000)
    world.publish("a.y", 6, 6)
    world.restart()
    world.publish("b.y", 6, 7)
    world.settle()
    found = gathered(world)
    assert (found["A"], found["B"]) == (numbers(1, 6), numbers(1, 7))


def test_a_source_is_found_though_later_messages_have_no_headers_or_are_gone(
    world: World,
) -> None:
    two_sources(world)
    world.client.api("STREAM.MSG.DELETE.S", {"seq": 10})
    world.publish("s.own", 1, 50)
    world.restart()
    world.settle()
    lost = {"A": numbers(1, 5), "B": numbers(1, 5)}
    found = gathered(world)
    found.pop("")
    # The one that was deleted comes again: the stream's own messages are what counts.
    assert found == lost


def test_sources_go_on_after_the_stream_itself_was_purged(world: World) -> None:
    two_sources(world)
    world.client.api("STREAM.PURGE.S")
    world.publish("a.x", 6, 7)
    assert gathered(world) == {"A": numbers(6, 7)}


def test_a_stream_that_was_emptied_does_not_begin_again_after_a_restart(world: World) -> None:
    two_sources(world)
    world.settle()
    world.client.api("STREAM.PURGE.S")
    world.restart()
    world.publish("a.x", 6, 7)
    world.settle()
    assert gathered(world) == {"A": numbers(6, 7)}


def test_a_purged_source_goes_on(world: World) -> None:
    two_sources(world)
    world.client.api("STREAM.PURGE.A")
    world.publish("a.x", 6, 7)
    world.settle()
    assert gathered(world)["A"] == numbers(1, 7)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_source_made_anew_is_gathered_from_its_beginning(world: World, restarts: bool) -> None:
    two_sources(world)
    world.client.api("STREAM.DELETE.A")
    if restarts:
        world.restart()
    world.create("A", subjects=["a.>"])
    world.publish("a.x", 101, 110)
    world.settle(60)
    assert gathered(world) == {"A": [*numbers(1, 5), *numbers(101, 110)], "B": numbers(1, 5)}


def test_a_source_added_later_is_gathered_and_a_removed_one_is_not(world: World) -> None:
    two_sources(world)
    world.create("C", subjects=["c.>"])
    world.publish("c.x", 1, 3)
    world.update("S", subjects=["s.>"], sources=[{"name": "B"}, {"name": "C"}])
    world.publish("a.x", 6, 6)
    world.publish("b.x", 6, 6)
    world.settle()
    assert gathered(world) == {"A": numbers(1, 5), "B": numbers(1, 6), "C": numbers(1, 3)}
    world.update("S", subjects=["s.>"], sources=[{"name": "A"}])
    world.settle()
    assert gathered(world)["A"] == numbers(1, 6)
    assert [shown["name"] for shown in world.info("S")["sources"]] == ["A"]


def test_a_stream_can_gather_the_same_source_by_several_filters(world: World) -> None:
    world.create("A", subjects=["a.>"])
    sources = [
        {"name": "A", "filter_subject": "a.x"},
        {"name": "A", "subject_transforms": [{"src": "a.y.*", "dest": "y{{wildcard(1)}}.z"}]},
        {"name": "A", "subject_transforms": [{"src": "a.z.*", "dest": "z.{{wildcard(1)}}"}]},
    ]
    world.create("S", sources=sources)
    world.settle()
    for subject in ("a.x", "a.y.1", "a.z.2", "a.other"):
        world.client.store(subject)
    world.settle()
    world.restart()
    world.client.store("a.z.3")
    world.settle()
    subjects = [subject for _, subject, *_ in world.contents("S")]
    assert sorted(subjects) == ["a.x", "y{{wildcard(1)}}.z", "z.2", "z.3"]


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        ({"opt_start_seq": 4}, numbers(4, 8)),
        ({"opt_start_time": "2023-11-14T22:13:23Z"}, numbers(6, 8)),
    ],
)
def test_a_source_begins_where_it_is_told_and_does_not_begin_there_again(
    world: World, options: dict[str, Any], bodies: list[bytes]
) -> None:
    world.create("A", subjects=["a.>"])
    world.publish("a.x", 1, 5)
    world.settle()
    world.publish("a.x", 6, 6)
    world.create("S", sources=[{"name": "A", **options}])
    world.settle()
    world.restart()
    world.publish("a.x", 7, 8)
    world.settle()
    assert world.bodies("S") == bodies


def test_the_duplicate_window_holds_for_sources_too(world: World) -> None:
    world.create("A", subjects=["a.>"])
    world.create("B", subjects=["b.>"])
    sources = [{"name": "A"}, {"name": "B"}]
    world.create("S", subjects=["s"], sources=sources, duplicate_window=60 * 10**9)
    world.create("ALL", sources=sources)
    world.settle()
    assert world.client.store("s", b"own", Nats_Msg_Id="1")["seq"] == 1
    world.client.store("a.x", b"a", Nats_Msg_Id="1")
    world.client.store("a.x", b"a", Nats_Msg_Id="2")
    world.client.store("b.x", b"b", Nats_Msg_Id="2")
    world.client.store("b.x", b"b", Nats_Msg_Id="3")
    assert world.bodies("S") == [b"own", b"a", b"b"]
    assert world.bodies("ALL") == [b"a", b"a", b"b", b"b"]
    assert world.client.store("s", Nats_Msg_Id="3") == {"stream": "S", "seq": 3, "duplicate": True}


def test_a_client_cannot_say_where_a_message_came_from(world: World) -> None:
    two_sources(world)
    answer = world.client.store("s.own", Nats_Stream_Source="A 99 > > a.x")
    assert answer["error"]["err_code"] == 10227


def test_a_work_queue_that_gathers_is_worked_off(world: World) -> None:
    two_sources(world, retention="workqueue")
    config = {"durable_name": "C", "ack_policy": "explicit"}
    world.client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    world.client.subscribe("in")
    world.client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":10}', "in")
    for message in world.client.take():
        world.client.publish(message.reply)
    assert world.contents("S") == []
    world.restart()
    world.publish("b.x", 6, 6)
    world.settle()
    assert world.bodies("S") == [b"6"]


def test_what_cannot_be_stored_is_shown_and_comes_later(world: World) -> None:
    world.create("A", subjects=["a.>"])
    world.create("S", sources=[{"name": "A"}], max_msgs=2, discard="new")
    world.settle()
    world.publish("a.x", 1, 5)
    world.settle()
    [shown] = world.info("S")["sources"]
    assert (shown["seq"], shown["error"]["err_code"]) == (2, 10077)
    world.client.api("STREAM.PURGE.S")
    world.settle(60)
    assert world.bodies("S") == numbers(3, 4)


def add(world: World, subject: str, increment: int) -> str:
    """Add to a counter; its total."""
    value: str = world.client.store(subject, b"", Nats_Incr=str(increment))["val"]
    return value


def counters(world: World) -> None:
    """Counters in EAST and WEST, which SUM adds up, and TOP that of SUM."""
    for name in ("EAST", "WEST"):
        world.create(name, subjects=[f"count.{name.lower()}.>"], allow_msg_counter=True)
    sources = [
        {
            "name": name,
            "subject_transforms": [{"src": f"count.{name.lower()}.>", "dest": "count.sum.>"}],
        }
        for name in ("EAST", "WEST")
    ]
    options = {"subjects": ["count.sum.>"], "allow_msg_counter": True}
    world.create("SUM", sources=sources, **options)
    world.create("TOP", sources=[{"name": "SUM"}], allow_msg_counter=True)
    world.settle()


def test_counters_of_sources_add_up(world: World) -> None:
    counters(world)
    assert [add(world, "count.east.k", 5), add(world, "count.west.k", 7)] == ["5", "7"]
    assert [add(world, "count.east.k", 2), add(world, "count.west.k", -1)] == ["7", "6"]
    assert add(world, "count.sum.k", 100) == "113"
    assert world.bodies("SUM")[-1] == world.bodies("TOP")[-1] == b'{"val":"113"}'
    headers = world.get("SUM", 5)["headers"]
    assert headers == {
        "Nats-Incr": "100",
        "Nats-Counter-Sources": '{"EAST":{"count.east.k":"7"},"WEST":{"count.west.k":"6"}}',
    }
    headers = world.get("TOP", 5)["headers"]
    assert headers["Nats-Counter-Sources"] == '{"SUM":{"count.sum.k":"113"}}'


def test_increments_that_were_never_seen_count_all_the_same(world: World) -> None:
    counters(world)
    add(world, "count.east.k", 5)
    world.restart()
    world.update("EAST", subjects=["count.east.>"], allow_msg_counter=True, max_msgs_per_subject=1)
    for n in range(10):
        add(world, "count.east.k", n)
    world.settle()
    assert world.bodies("SUM")[-1] == world.bodies("EAST")[-1] == b'{"val":"50"}'


def test_counters_of_a_source_made_anew_count_what_it_says(world: World) -> None:
    counters(world)
    add(world, "count.east.k", 5)
    add(world, "count.west.k", 1)
    world.client.api("STREAM.DELETE.EAST")
    world.create("EAST", subjects=["count.east.>"], allow_msg_counter=True)
    add(world, "count.east.k", 3)
    world.settle(60)
    assert world.bodies("SUM")[-1] == b'{"val":"4"}'


def test_a_stream_that_does_not_count_takes_totals_as_they_are(world: World) -> None:
    counters(world)
    world.create("COPY", sources=[{"name": "SUM"}])
    world.settle()
    add(world, "count.east.k", 5)
    add(world, "count.east.k", 6)
    assert world.bodies("COPY") == [b'{"val":"5"}', b'{"val":"11"}']


def test_a_counter_cannot_gather_what_does_not_count(world: World) -> None:
    world.create("A", subjects=["a.>"])
    world.create("C", sources=[{"name": "A"}], allow_msg_counter=True)
    world.publish("a.x", 1, 1)
    world.settle()
    [shown] = world.info("C")["sources"]
    assert shown["error"]["err_code"] == 10169
    assert world.contents("C") == []
