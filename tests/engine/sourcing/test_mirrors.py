"""A mirror has what its upstream has, under the same sequences, whatever happens to the two."""

from typing import Any

import pytest

from slipstream.log.file_log import FileLog
from slipstream.model.durations import SECOND
from tests.engine.sourcing.conftest import World


def numbers(first: int, last: int) -> list[bytes]:
    """The bodies that `World.publish` stores."""
    return [b"%d" % n for n in range(first, last + 1)]


def mirror(world: World, **options: Any) -> None:
    """A mirror M of a stream U with ten messages."""
    world.create("U", subjects=["u.>"], allow_direct=True)
    world.publish("u.a", 1, 10)
    world.create("M", mirror={"name": "U", **options})
    world.settle()


def test_a_mirror_has_the_messages_sequences_and_times_of_its_upstream(world: World) -> None:
    mirror(world)
    world.settle(3)
    world.publish("u.b", 11, 20)
    assert world.contents("M") == world.contents("U")
    assert world.info("M")["mirror"] == {"name": "U", "lag": 0, "active": 0}


def test_a_mirror_shows_what_it_follows_before_it_does(world: World) -> None:
    answer = world.create("M", mirror={"name": "U"})
    assert answer["mirror"] == {"name": "U", "lag": 0, "active": -1}
    assert "subjects" not in answer["config"]
    world.settle()
    shown = world.info("M")["mirror"]
    assert shown["error"] == {"code": 404, "err_code": 10059, "description": "stream not found"}


def test_a_mirror_made_before_its_upstream_follows_it_once_it_is_there(world: World) -> None:
    world.create("M", mirror={"name": "U"})
    world.settle(200)
    world.create("U", subjects=["u.>"])
    world.publish("u.a", 1, 3)
    world.settle(31)
    assert world.bodies("M") == numbers(1, 3)
    assert "error" not in world.info("M")["mirror"]


def test_its_consumer_is_shown_to_nobody(world: World) -> None:
    mirror(world)
    assert world.client.api("CONSUMER.NAMES.U")["consumers"] == []
    assert world.client.api("CONSUMER.LIST.U")["consumers"] == []
    assert world.info("U")["state"]["consumer_count"] == 0
    assert world.client.api("INFO")["consumers"] == 0


def test_a_message_deleted_upstream_before_it_was_copied_is_a_gap(world: World) -> None:
    world.create("U", subjects=["u.>"])
    world.publish("u.a", 1, 10)
    for seq in (4, 5, 10):
        world.client.api("STREAM.MSG.DELETE.U", {"seq": seq})
    world.create("M", mirror={"name": "U"})
    world.settle()
    world.publish("u.a", 11, 11)
    assert world.contents("M") == world.contents("U")
    state = world.info("M")["state"]
    assert (state["num_deleted"], state["last_seq"]) == (3, 11)


def test_a_mirror_of_a_stream_that_lost_its_beginning_begins_where_that_does(world: World) -> None:
    world.create("U", subjects=["u.>"], first_seq=1000)
    world.publish("u.a", 1, 10)
    world.client.api("STREAM.PURGE.U", {"seq": 1005})
    world.create("M", mirror={"name": "U"})
    world.settle()
    state = world.info("M")["state"]
    assert (state["first_seq"], state["last_seq"], state.get("num_deleted")) == (1005, 1009, None)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("crashes", [True, False])
def test_a_mirror_goes_on_after_a_restart(world: World, settled: bool, crashes: bool) -> None:
    mirror(world)
    world.publish("u.a", 11, 15)
    if settled:
        world.settle()
    if crashes:
        world.crash()
    else:
        world.restart()
    world.publish("u.a", 16, 20)
    world.settle()
    assert world.contents("M") == world.contents("U")
    assert world.bodies("M") == numbers(1, 20)


def test_a_purge_upstream_takes_nothing_from_the_mirror_and_leaves_a_gap(world: World) -> None:
    mirror(world)
    world.client.api("STREAM.PURGE.U")
    world.publish("u.a", 11, 12)
    world.client.api("STREAM.PURGE.U", {"seq": 100})
    world.settle()
    world.publish("u.a", 100, 101)
    assert world.bodies("M") == [*numbers(1, 12), *numbers(100, 101)]
    assert [seq for seq, *_ in world.contents("M")][-2:] == [100, 101]


def test_a_purge_while_the_server_was_down_is_a_gap_too(world: World) -> None:
    mirror(world)
    world.restart()
    world.client.api("STREAM.PURGE.U", {"seq": 50})
    world.publish("u.a", 50, 51)
    world.settle()
    assert world.bodies("M") == [*numbers(1, 10), b"50", b"51"]
    assert world.info("M")["state"]["last_seq"] == 51


def test_a_gap_of_millions_is_one_step(world: World) -> None:
    mirror(world)
    world.client.api("STREAM.PURGE.U", {"seq": 50_000_000})
    world.publish("u.a", 1, 2)
    world.settle()
    assert world.info("M")["state"]["last_seq"] == 50_000_001
    world.crash()
    world.settle()
    world.publish("u.a", 3, 3)
    assert world.contents("M")[-3:] == world.contents("U")
    log = world.driver.js.streams["M"].log
    assert isinstance(log, FileLog)
    assert len(log.blocks) < 10


def test_a_deleted_upstream_shows_as_an_error_and_one_made_anew_goes_on_behind(
    world: World,
) -> None:
    mirror(world)
    world.driver.engine.on_problem = world.problems.append
    world.client.api("STREAM.DELETE.U")
    world.settle(15)
    shown = world.info("M")["mirror"]
    assert (shown["error"]["err_code"], shown["active"] > 10 * SECOND) == (10059, True)
    world.create("U", subjects=["u.>"])
    world.publish("u.a", 1, 12)
    world.settle(60)
    assert [seq for seq, *_ in world.contents("M")] == list(range(1, 13))
    assert world.bodies("M") == [*numbers(1, 10), b"11", b"12"]
    assert "error" not in world.info("M")["mirror"]
    assert any("made anew" in problem for problem in world.problems)


def test_limits_of_the_mirror_are_its_own(world: World) -> None:
    world.create("U", subjects=["u.>"], max_msgs=5)
    world.create("M", mirror={"name": "U"}, max_msgs=3)
    world.create("ALL", mirror={"name": "U"})
    world.settle()
    world.publish("u.a", 1, 10)
    assert world.bodies("U") == numbers(6, 10)
    assert world.bodies("M") == numbers(8, 10)
    assert world.bodies("ALL") == numbers(1, 10)


def test_a_mirror_that_is_full_and_refuses_what_is_new_waits_and_then_goes_on(
    world: World,
) -> None:
    world.create("U", subjects=["u.>"])
    world.create("M", mirror={"name": "U"}, max_msgs=3, discard="new")
    world.settle()
    world.publish("u.a", 1, 10)
    world.settle()
    shown = world.info("M")["mirror"]
    assert world.bodies("M") == numbers(1, 3)
    assert shown["error"]["description"] == "maximum messages exceeded"
    world.update("M", mirror={"name": "U"}, max_msgs=20, discard="new")
    world.settle(60)
    assert world.contents("M") == world.contents("U")


def test_a_mirror_goes_on_once_a_full_disk_has_room_again(world: World) -> None:
    mirror(world)
    world.create("MEMORY", subjects=["v.>"], storage="memory")
    world.create("N", mirror={"name": "MEMORY"})
    world.settle()
    world.disk.capacity = world.disk.used()
    world.publish("v.a", 1, 200)
    assert len(world.contents("N")) < 200
    world.settle(10)
    assert world.info("N")["mirror"]["error"]["err_code"] == 10077
    world.disk.capacity = 1 << 40
    world.settle(60)
    assert world.bodies("N") == numbers(1, 200)
    assert "error" not in world.info("N")["mirror"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"filter_subject": "u.b"}, [4, 5, 6]),
        ({"opt_start_seq": 8}, [8, 9]),
        ({"opt_start_seq": 5, "filter_subject": "u.b"}, [5, 6]),
        ({"opt_start_time": "2023-11-14T22:13:25Z"}, [7, 8, 9]),
        ({"subject_transforms": [{"src": "u.a", "dest": "z"}]}, [1, 2, 3]),
        (
            {"subject_transforms": [{"src": "u.a", "dest": "z.a"}, {"src": "u.c", "dest": ""}]},
            [1, 2, 3, 7, 8, 9],
        ),
    ],
)
def test_filters_and_starts_choose_and_sequences_stay(
    world: World, options: dict[str, Any], kept: list[int]
) -> None:
    world.create("U", subjects=["u.>"])
    world.publish("u.a", 1, 3)
    world.publish("u.b", 4, 6)
    world.settle()
    world.publish("u.c", 7, 9)
    world.create("M", mirror={"name": "U", **options})
    world.settle()
    world.restart()
    world.settle()
    assert [seq for seq, *_ in world.contents("M")] == kept
    assert world.bodies("M") == [b"%d" % n for n in kept]


def test_transforms_of_the_mirror_and_of_the_stream_change_subjects(world: World) -> None:
    world.create("U", subjects=["u.>"])
    transforms = [{"src": "u.a.*", "dest": "a.{{wildcard(1)}}"}, {"src": "u.b", "dest": ""}]
    world.create("M", mirror={"name": "U", "subject_transforms": transforms})
    inner = {"src": "u.>", "dest": "x.>"}
    world.create("N", mirror={"name": "U"}, subject_transform=inner)
    world.settle()
    for subject in ("u.a.1", "u.b", "u.c"):
        world.client.store(subject)
    assert [(seq, subject) for seq, subject, *_ in world.contents("M")] == [(1, "a.1"), (2, "u.b")]
    assert [subject for _, subject, *_ in world.contents("N")] == ["x.a.1", "x.b", "x.c"]
    assert world.info("M")["mirror"]["subject_transforms"] == transforms


def test_conditions_of_the_first_publish_are_not_copied_and_other_headers_are(
    world: World,
) -> None:
    world.create("U", subjects=["u.>"])
    world.create("M", mirror={"name": "U"})
    world.settle()
    world.client.store("u.a", Nats_Expected_Last_Sequence="0", X="y")
    world.client.store("u.a", Nats_Expected_Last_Sequence="1")
    world.client.store("u.a", Nats_Msg_Id="m")
    headers = [world.get("M", seq)["headers"] for seq in (1, 2, 3)]
    assert headers == [{"X": "y"}, {}, {"Nats-Msg-Id": "m"}]


def test_messages_with_a_time_to_live_expire_where_the_mirror_allows_it(world: World) -> None:
    world.create("U", subjects=["u.>"], allow_msg_ttl=True)
    world.client.store("u.a", Nats_TTL="100s")
    world.settle(50)
    world.create("M", mirror={"name": "U"}, allow_msg_ttl=True)
    world.create("KEEPS", mirror={"name": "U"})
    world.settle(49)
    assert len(world.contents("M")) == 1
    world.settle(2)
    assert world.contents("M") == world.contents("U") == []
    assert len(world.contents("KEEPS")) == 1


def test_roll_ups_happen_in_a_mirror_that_allows_them(world: World) -> None:
    world.create("U", subjects=["u.>"], allow_rollup_hdrs=True)
    world.create("M", mirror={"name": "U"}, allow_rollup_hdrs=True)
    world.create("KEEPS", mirror={"name": "U"})
    world.settle()
    world.publish("u.a", 1, 3)
    world.client.store("u.a", b"4", Nats_Rollup="sub")
    assert world.contents("M") == world.contents("U")
    assert world.bodies("KEEPS") == numbers(1, 4)


def test_a_promoted_mirror_is_a_stream_like_any_other(world: World) -> None:
    mirror(world)
    answer = world.update("M", subjects=["m.>"])
    assert "mirror" not in answer
    assert world.client.store("m.x", b"own")["seq"] == 11
    world.publish("u.a", 11, 12)
    world.settle()
    assert world.bodies("M") == [*numbers(1, 10), b"own"]
    world.restart()
    world.settle()
    assert world.bodies("M") == [*numbers(1, 10), b"own"]
    assert world.client.store("m.x", b"more")["seq"] == 12


@pytest.mark.parametrize(
    "change",
    [
        {"mirror": {"name": "V"}}, {"mirror": {"name": "U", "filter_subject": "u.a"}},
    ],
)  # fmt: skip
def test_a_mirror_cannot_follow_another_stream(world: World, change: dict[str, Any]) -> None:
    mirror(world)
    assert world.update("M", **change)["error"]["err_code"] == 10055
    world.publish("u.a", 11, 11)
    assert world.contents("M") == world.contents("U")


def test_direct_gets_for_the_upstream_are_answered_by_it_and_its_mirror(world: World) -> None:
    mirror(world)
    assert world.info("M")["config"]["mirror_direct"] is True
    streams = set()
    for _ in range(50):
        message = world.client.request("$JS.API.DIRECT.GET.U.u.a")
        assert (message.body, message.fields["Nats-Sequence"]) == (b"10", "10")
        streams.add(message.fields["Nats-Stream"])
    assert streams == {"U", "M"}
    world.client.api("STREAM.DELETE.U")
    message = world.client.request("$JS.API.DIRECT.GET.U", b'{"seq":3}')
    assert message.fields["Nats-Stream"] == "M"
    world.client.api("STREAM.DELETE.M")
    assert world.client.ask("$JS.API.DIRECT.GET.U", b'{"seq":3}')[0].status == "503"


def test_a_mirror_that_is_far_behind_does_not_answer_for_its_upstream(world: World) -> None:
    mirror(world)
    world.restart()
    for _ in range(20):  # before the mirror has found its upstream again
        message = world.client.request("$JS.API.DIRECT.GET.U.u.a")
        assert message.fields["Nats-Stream"] == "U"


def test_a_mirror_of_a_stream_without_direct_gets_answers_none(world: World) -> None:
    world.create("U", subjects=["u.>"])
    world.create("M", mirror={"name": "U"}, mirror_direct=True)
    world.settle()
    assert world.info("M")["config"]["mirror_direct"] is False
    assert world.client.ask("$JS.API.DIRECT.GET.U", b'{"seq":1}')[0].status == "503"


def test_nothing_is_lost_when_the_consumer_of_a_mirror_disappears(world: World) -> None:
    mirror(world)
    upstream = world.driver.js.streams["U"]
    [consumer] = upstream.direct_consumers.values()
    consumer.stop("Consumer Deleted", delete=True)
    world.publish("u.a", 11, 20)
    assert world.bodies("M") == numbers(1, 10)
    world.settle(15)
    assert world.contents("M") == world.contents("U")


def test_a_message_lost_on_the_way_is_noticed_by_the_next_one(world: World) -> None:
    mirror(world)
    [consumer] = world.driver.js.streams["U"].direct_consumers.values()
    consumer.delivered_seq += 1  # as if one had gone out that did not arrive
    world.publish("u.a", 11, 12)
    world.settle(3)
    assert world.contents("M") == world.contents("U")


def test_a_message_lost_on_the_way_is_noticed_by_a_heartbeat(world: World) -> None:
    mirror(world)
    [consumer] = world.driver.js.streams["U"].direct_consumers.values()
    consumer.delivered_seq += 1
    world.settle(3)
    [replaced] = [
        c for c in world.driver.js.streams["U"].direct_consumers.values() if c.delivery.active
    ]
    assert replaced is not consumer


def test_an_abandoned_consumer_of_a_mirror_ends(world: World) -> None:
    mirror(world)
    world.client.api("STREAM.DELETE.M")
    world.settle(15)
    assert world.driver.js.streams["U"].direct_consumers == {}


def test_a_mirror_of_a_mirror_follows(world: World) -> None:
    mirror(world)
    world.create("N", mirror={"name": "M"}, storage="memory")
    world.settle()
    world.publish("u.a", 11, 12)
    assert world.contents("N") == world.contents("U")


def test_consumers_of_a_mirror_get_what_comes(world: World) -> None:
    mirror(world)
    reader = world.driver.client()
    reader.subscribe("in")
    config = {"deliver_subject": "in", "deliver_policy": "new"}
    world.client.api("CONSUMER.CREATE.M", {"stream_name": "M", "config": config})
    world.publish("u.a", 11, 12)
    assert [m.body for m in reader.take() if m.subject == "u.a"] == [b"11", b"12"]


def test_a_stream_that_may_have_been_promoted_follows_nobody_until_it_is_updated(
    world: World,
) -> None:
    mirror(world)
    first, second = [path for path in world.disk.files() if "/M/meta." in path]
    older = world.disk.read(second)
    world.update("M", subjects=["m"])
    world.driver.advance(3 * SECOND)  # both copies have it now
    assert b'["m"]' in world.disk.read(first)
    world.disk.flip(first, 300)
    world.disk.lose(second)  # and what is there instead is the copy of a backup
    backup = world.disk.open(second)
    backup.append(older)
    backup.sync()
    world.disk.sync_dir(second.rpartition("/")[0])
    world.crash()
    stream = world.driver.js.streams["M"]
    assert stream.doubt
    assert stream.config.mirror is not None
    world.publish("u.a", 11, 12)
    world.settle()
    assert world.bodies("M") == numbers(1, 10)
    world.update("M", subjects=["m"])
    assert world.client.store("m")["seq"] == 11
