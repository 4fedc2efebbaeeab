"""Arguments that cannot be meant: the error names the argument, and says what it should be."""

from datetime import datetime, timedelta
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import ConsumerConfig, JetStream, Schedule, StreamConfig
from slipstream.client.jetstream.publish import block_of
from slipstream.errors import ConfigError


@pytest.mark.parametrize("wrong", ["ten", "1", 1.5, b"1"])
async def test_an_increment_is_a_whole_number(js: JetStream, wrong: Any) -> None:
    with pytest.raises(TypeError) as refused:
        await js.publish("counted", increment=wrong)
    assert str(refused.value) == f"increment is a whole number, not {wrong!r}"


def test_an_increment_has_its_sign_on_the_wire() -> None:
    assert block_of(None, {"increment": 10}) == b"NATS/1.0\r\nNats-Incr: +10\r\n\r\n"
    assert block_of(None, {"increment": -1}) == b"NATS/1.0\r\nNats-Incr: -1\r\n\r\n"


@pytest.mark.parametrize(
    "call", ["create_stream", "update_stream", "create_or_update_stream", "get_or_create_stream"]
)
async def test_a_field_that_a_stream_has_not_is_refused_with_the_nearest_one(
    js: JetStream, call: str
) -> None:
    with pytest.raises(TypeError) as refused:
        await getattr(js, call)(name="MISTAKE", subject=["mistake"])
    assert str(refused.value) == f"{call} has no field subject; did you mean subjects?"


@pytest.mark.parametrize("action", ["create", "update", "create_or_update", "get_or_create"])
@pytest.mark.parametrize("kind", ["consumer", "push_consumer"])
async def test_a_field_that_a_consumer_has_not_is_refused_with_the_nearest_one(
    js: JetStream, action: str, kind: str
) -> None:
    with pytest.raises(TypeError) as refused:
        await getattr(js, f"{action}_{kind}")("ORDERS", durabel_name="billing")
    assert str(refused.value) == (
        f"{action}_{kind} has no field durabel_name; did you mean durable_name?"
    )


def test_a_field_that_is_like_no_other_is_refused_with_all_there_are(js: JetStream) -> None:
    with pytest.raises(TypeError, match=r"ordered_consumer has no field zzz; it has .*name_prefix"):
        js.ordered_consumer("ORDERS", zzz=1)


async def test_a_name_where_a_configuration_is_expected_is_refused_with_the_keyword(
    js: JetStream,
) -> None:
    with pytest.raises(TypeError) as refused:
        await js.create_stream("ORDERS")  # type: ignore[arg-type]
    said = "create_stream takes a StreamConfig or its fields, not 'ORDERS'; is it name='ORDERS'?"
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subjects": "a.>"}, "subjects is a list, not 'a.>'; is it ['a.>']?"),
        ({"mirror": "ORDERS"}, "mirror takes a StreamSource, not 'ORDERS'"),
        ({"sources": ["ORDERS"]}, "sources takes a StreamSource, not 'ORDERS'"),
        ({"sources": "ORDERS"}, "sources is a list, not 'ORDERS'; is it ['ORDERS']?"),
        ({"placement": {"cluster": "a"}}, "placement takes a Placement, not {'cluster': 'a'}"),
    ],
)
async def test_a_value_of_another_kind_is_refused_with_what_the_field_takes(
    js: JetStream, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as refused:
        await js.create_stream(name="MISTAKE", **given)
    assert str(refused.value) == said
    with pytest.raises(TypeError, match=r"^opt_start_time is a datetime, not '2030-01-01'$"):
        await js.create_consumer("ORDERS", opt_start_time="2030-01-01")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^filter_subjects is a list, not 'a'; is it \['a'\]\?$"):
        await js.create_consumer("ORDERS", filter_subjects="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["fetch", "next", "fetch_no_wait", "fetch_bytes", "fetch_arrow"])
async def test_an_option_of_a_fetch_that_there_is_not_is_refused_with_the_nearest_one(
    js: JetStream, call: str
) -> None:
    name = js.connection.new_id()
    stream = await js.create_stream(name=name, subjects=[name])
    consumer = await stream.create_consumer(durable_name="c")
    given = () if call == "next" else (1,)
    with pytest.raises(TypeError, match=r"^fetch\w* has no option timout; did you mean timeout\?$"):
        await getattr(consumer, call)(*given, timout=1)
    with pytest.raises(TypeError, match=r"^batch has no option hearbeat; did you mean heartbeat"):
        consumer.batch(1, hearbeat=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^pulling has no option expire; did you mean expires\?$"):
        consumer.messages(expire=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^publish has no option messge_id; did you mean message_"):
        await js.publish(name, messge_id="1")  # type: ignore[call-arg]
    await js.delete_stream(name)


async def test_an_option_that_a_bucket_has_not_is_refused_with_the_nearest_one(
    js: JetStream,
) -> None:
    with pytest.raises(TypeError) as refused:
        await js.create_key_value("prefs", histroy=5)  # type: ignore[call-overload]
    said = "a key-value bucket has no option histroy; did you mean history?"
    assert str(refused.value) == said
    with pytest.raises(TypeError) as refused:
        await js.create_object_store("files", max_byte=5)  # type: ignore[call-arg]
    assert str(refused.value) == "an object store has no option max_byte; did you mean max_bytes?"
    for make in (js.create_key_value, js.create_object_store):
        with pytest.raises(TypeError, match="needs a name: give it first"):
            await make()


async def test_an_option_of_connect_that_there_is_not_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as refused:
        await slipstream.connect(nmae="billing")
    assert str(refused.value) == "connect has no option nmae; did you mean name?"


async def test_lengths_of_time_are_numbers_or_timedeltas(js: JetStream) -> None:
    with pytest.raises(TypeError, match=r"^max_age is seconds or a timedelta, not '1h'$"):
        await js.create_stream(name="MISTAKE", subjects=["mistake"], max_age="1h")
    with pytest.raises(TypeError, match=r"^backoff is seconds or a timedelta, not '1s'$"):
        await js.create_consumer("ORDERS", backoff=["1s"])
    with pytest.raises(TypeError, match=r"^timeout is seconds or a timedelta, not '5s'$"):
        await js.publish("mistake", timeout="5s")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^timeout is seconds or a timedelta, not '5s'$"):
        await js.publish_async("mistake", timeout="5s")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^timeout is seconds or a timedelta, not '5s'$"):
        await js.connection.request("mistake", timeout="5s")  # type: ignore[arg-type]
    subscription = await js.connection.subscribe("mistake")
    with pytest.raises(TypeError, match=r"^timeout is seconds or a timedelta, not '5s'$"):
        await subscription.next(timeout="5s")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^connect_timeout is seconds or a timedelta, not '5s'$"):
        await slipstream.connect(connect_timeout="5s")


@pytest.mark.parametrize("wrong", ["a", 7])
async def test_headers_are_a_mapping_or_pairs(js: JetStream, wrong: Any) -> None:
    said = f"^headers are a mapping or pairs, not {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=said):
        await js.connection.publish("mistake", headers=wrong)
    with pytest.raises(TypeError, match=said):
        await js.publish("mistake", headers=wrong)
    with pytest.raises(TypeError, match=said):
        await js.publish("mistake", headers=wrong, message_id="1", ttl=1)


async def test_headers_may_be_pairs(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe("x" + nc.new_id())
    await nc.publish(subscription.subject, headers=[("Tag", "a"), ("Tag", "b")])
    message = await subscription.next(timeout=5)
    assert dict(message.headers.items()) == {"Tag": ["a", "b"]}


@pytest.mark.parametrize("wrong", [0.5, 1.5, 0, timedelta(milliseconds=1500)])
async def test_a_schedule_repeats_after_whole_seconds(js: JetStream, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^every is a whole number of seconds, 1 or more, not "):
        await js.publish("plan", schedule=Schedule(target="tick", every=wrong))


async def test_a_cron_line_has_six_fields(js: JetStream) -> None:
    with pytest.raises(ValueError, match=r"^cron is six fields, seconds first.*'\* \* \* \* \*'$"):
        await js.publish("plan", schedule=Schedule(target="tick", cron="* * * * *"))
    for cron in ("0 * * * * *", "@daily"):
        assert ("Nats-Schedule", cron) in Schedule(target="tick", cron=cron).fields()


async def test_what_is_no_schedule_is_refused(js: JetStream) -> None:
    with pytest.raises(TypeError, match=r"^schedule is a Schedule, not '@daily'$"):
        await js.publish("plan", schedule="@daily")  # type: ignore[arg-type]


async def test_a_policy_is_one_of_its_words(js: JetStream) -> None:
    with pytest.raises(ValueError) as refused:
        await js.create_stream(name="MISTAKE", subjects=["mistake"], retention="queue")
    assert str(refused.value) == "retention is one of limits, interest, workqueue, not 'queue'"
    with pytest.raises(ValueError, match=r"^ack_policy is one of none, all, .*, not 'maybe'$"):
        await js.create_consumer("ORDERS", ack_policy="maybe")


def test_a_word_of_a_newer_server_is_kept_and_sent_back() -> None:
    read = StreamConfig.from_wire({"name": "NEW", "storage": "tape"})
    assert read.storage == "tape"
    assert read.replace(max_age=1).to_wire()["storage"] == "tape"
    assert type(read.to_wire()["storage"]) is str
    consumer = ConsumerConfig.from_wire({"ack_policy": "later"})
    assert consumer.to_wire()["ack_policy"] == "later"


def test_a_time_without_a_zone_is_local() -> None:
    naive = datetime(2030, 1, 1, 12)
    assert (
        Schedule(target="tick", at=naive).fields()
        == Schedule(target="tick", at=naive.astimezone()).fields()
    )
