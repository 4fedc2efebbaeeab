"""Streams: making, changing, finding, reading, purging; what the API refuses."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import slipstream
from slipstream.client.errors import InvalidSubjectError
from slipstream.client.jetstream import (
    JetStream,
    Stream,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from slipstream.client.jetstream.api import Api
from slipstream.client.jetstream.errors import (
    ApiError,
    FeatureError,
    InvalidNameError,
    JetStreamNotEnabledError,
    MessageNotFoundError,
    StreamExistsError,
    StreamNotFoundError,
)
from slipstream.errors import ConfigError
from tests.client.jetstream.conftest import MakeStream, or_skip
from tests.client.jetstream.test_consume import fill, until
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy


async def test_a_stream_is_what_it_was_asked_to_be(make_stream: MakeStream) -> None:
    stream = await make_stream(
        description="orders of the shop",
        max_age=timedelta(hours=1),
        max_msgs=1000,
        max_msgs_per_subject=10,
        discard="new",
        duplicate_window=60,
        metadata={"team": "billing"},
    )
    config = (await stream.info()).config
    assert config.max_age == 3600.0
    assert config.duplicate_window == 60.0
    assert (config.max_msgs, config.max_msgs_per_subject, config.discard) == (1000, 10, "new")
    assert config.metadata["team"] == "billing"
    assert config.extra == {}


async def test_creating_it_again_is_no_error_unless_it_differs(
    js: JetStream, stream: Stream
) -> None:
    same = StreamConfig(name=stream.name, subjects=[f"{stream.name}.>"], storage="memory")
    assert (await js.create_stream(same)).name == stream.name
    with pytest.raises(StreamExistsError):
        await js.create_stream(same, max_msgs=5)


async def test_update_changes_some_fields_and_keeps_the_rest(stream: Stream) -> None:
    info = await stream.update(max_msgs=5, description="small")
    assert (info.config.max_msgs, info.config.description) == (5, "small")
    assert info.config.subjects == [f"{stream.name}.>"]
    with pytest.raises(ApiError) as refused:
        await stream.update(storage="file")
    assert refused.value.err_code == 10052


async def test_create_or_update_does_either(js: JetStream, make_stream: MakeStream) -> None:
    stream = await make_stream(max_msgs=5)
    changed = stream.config.replace(max_msgs=7)
    assert (await js.create_or_update_stream(changed)).config.max_msgs == 7
    await stream.delete()
    assert (await js.create_or_update_stream(changed)).config.max_msgs == 7
    assert (await js.get_or_create_stream(changed, max_msgs=9)).config.max_msgs == 7


async def test_what_is_not_there_is_not_found(js: JetStream) -> None:
    with pytest.raises(StreamNotFoundError) as error:
        await js.stream("NOTHERE")
    assert "STREAM.INFO.NOTHERE" in str(error.value)
    with pytest.raises(StreamNotFoundError):
        await js.update_stream(name="NOTHERE")
    with pytest.raises(StreamNotFoundError):
        await js.delete_stream("NOTHERE")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "a/b", "a\\b"])
async def test_names_that_cannot_be_are_not_sent(js: JetStream, name: str) -> None:
    with pytest.raises(InvalidNameError):
        await js.create_stream(name=name)
    with pytest.raises(InvalidNameError):
        await js.stream(name)


async def test_streams_are_found_by_name_and_subject(
    js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    assert stream.name in [name async for name in js.stream_names()]
    assert [name async for name in js.stream_names(f"{stream.name}.a")] == [stream.name]
    (info,) = [info async for info in js.streams(f"{stream.name}.>")]
    assert info.name == stream.name
    assert await js.stream_name_by_subject(f"{stream.name}.a") == stream.name
    assert (await js.stream_by_subject(f"{stream.name}.a")).name == stream.name
    with pytest.raises(StreamNotFoundError):
        await js.stream_name_by_subject("nobody.listens")


async def test_infos_count_subjects_and_list_what_is_missing(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 6)
    await stream.delete_message(3)
    info = await stream.info(subjects_filter=">", deleted_details=True)
    assert info.state.subjects == {f"{stream.name}.{n}": 2 - (n == 2) for n in range(3)}
    assert info.state.deleted == [3]
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (5, 1, 6)
    assert (await stream.info(refresh=False)) is stream.cached_info


async def test_purging_takes_all_or_some(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 12)
    assert await stream.purge(filter=f"{stream.name}.0") == 4
    assert await stream.purge(sequence=7) == 4
    assert await stream.purge(keep=1) == 3
    assert await stream.purge() == 1
    with pytest.raises(ValueError, match="not by both"):
        await stream.purge(sequence=1, keep=1)


@pytest.mark.parametrize("allow_direct", [False, True])
async def test_messages_are_read_by_sequence_subject_and_time(
    js: JetStream, make_stream: MakeStream, allow_direct: bool
) -> None:
    stream = await make_stream(allow_direct=allow_direct)
    before = datetime.now(UTC) - timedelta(seconds=1)
    await js.publish(f"{stream.name}.a", "one", headers={"Kind": "x"})
    await js.publish(f"{stream.name}.b", "two")
    await js.publish(f"{stream.name}.a", "three")
    first = await stream.get_message(1)
    assert (first.stream, first.subject, first.sequence) == (stream.name, f"{stream.name}.a", 1)
    assert (first.data, dict(first.headers.items())) == (b"one", {"Kind": ["x"]})
    assert first.time is not None
    assert first.time > before
    assert (await stream.get_last_message(f"{stream.name}.a")).data == b"three"
    assert (await stream.get_next(2, f"{stream.name}.a")).sequence == 3
    assert (await stream.get_first(f"{stream.name}.b")).sequence == 2
    assert (await stream.get_at(before)).sequence == 1
    with pytest.raises(MessageNotFoundError):
        await stream.get_message(99)
    with pytest.raises(MessageNotFoundError):
        await stream.get_last_message(f"{stream.name}.z")


async def test_a_direct_get_of_a_stream_without_it_is_said_so(stream: Stream) -> None:
    with pytest.raises(StreamNotFoundError, match="direct"):
        await stream.get_message(1, direct=True)


async def test_a_batch_goes_on_after_the_connection_broke(
    server_url: str, js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream(allow_direct=True)
    await fill(js, stream, 1500)
    async with (
        Proxy(server_url) as proxy,
        slipstream.connect(proxy.url, reconnect_wait=0.01) as far,
    ):
        found: list[int] = []
        async for message in (await far.jetstream().stream(stream.name)).get_batch(1400):
            found.append(message.sequence)
            if len(found) in (1, 60, 1100):
                proxy.cut()
    assert found == list(range(1, 1401))


async def test_batches_are_read_over_many_pages(js: JetStream, make_stream: MakeStream) -> None:
    stream = await make_stream(allow_direct=True)
    await fill(js, stream, 2500)
    found = [message async for message in stream.get_batch(2300, sequence=101)]
    assert [message.sequence for message in found] == list(range(101, 2401))
    some = [m.sequence async for m in stream.get_batch(subject=f"{stream.name}.1")]
    assert some == list(range(2, 2501, 3))
    assert [m async for m in stream.get_batch(sequence=9999)] == []


async def test_the_last_message_of_each_subject(js: JetStream, make_stream: MakeStream) -> None:
    stream = await make_stream(allow_direct=True)
    await fill(js, stream, 9)
    found = [m async for m in stream.last_for(f"{stream.name}.*")]
    assert [m.sequence for m in found] == [7, 8, 9]
    earlier = [m.sequence async for m in stream.last_for([f"{stream.name}.0"], up_to_sequence=5)]
    assert earlier == [4]
    assert [m async for m in stream.last_for("nothing.*")] == []


async def test_deleting_a_message(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    await stream.delete_message(1)
    await stream.secure_delete_message(2)
    assert (await stream.info()).state.messages == 1
    with pytest.raises(ApiError):
        await stream.delete_message(1)


async def test_account_info_counts(js: JetStream, stream: Stream) -> None:
    info = await js.account_info()
    assert info.streams >= 1
    assert info.api.total > 0


async def test_a_domain_is_a_prefix_and_excludes_another(nc: "slipstream.Connection") -> None:
    assert nc.jetstream(domain="hub").prefix == "$JS.hub.API"
    assert nc.jetstream(prefix="JS.other.").prefix == "JS.other"
    with pytest.raises(ConfigError):
        nc.jetstream(domain="hub", prefix="other")


async def test_fields_that_are_unknown_are_kept_and_sent_back() -> None:
    config = StreamConfig.from_wire({"name": "S", "newer_than_us": {"x": 1}, "max_age": 1_000_000})
    assert config.max_age == 0.001
    sent = config.replace(max_msgs=3).to_wire()
    assert sent["newer_than_us"] == {"x": 1}
    assert (sent["max_age"], sent["max_msgs"]) == (1_000_000, 3)


async def test_lists_go_on_past_a_page(js: JetStream, stream: Stream) -> None:
    # A page of infos has 256.
    made = (stream.create_consumer(durable_name=f"c{number}") for number in range(300))
    await asyncio.gather(*made)
    names = {f"c{number}" for number in range(300)}
    assert {info.name async for info in stream.consumers()} == names
    assert {name async for name in stream.consumer_names()} == names


async def test_pages_are_asked_for_until_there_are_no_more(js: JetStream) -> None:
    asked: list[int] = []

    class Paged(Api):
        async def request(self, endpoint: str, body: Any = None, *, timeout: Any = None) -> Any:
            asked.append(body["offset"])
            names = [str(n) for n in range(body["offset"], min(body["offset"] + 1024, 2500))]
            return {"total": 2500, "streams": names}

    api = Paged(js.connection, "$JS.API", 5)
    assert len([name async for name in api.pages("STREAM.NAMES", "streams")]) == 2500
    assert asked == [0, 1024, 2048]


async def test_the_server_that_ignores_what_is_new_is_found_out(js: JetStream) -> None:
    # As servers before 2.10 did with filters, transforms and the like.
    class Old(Api):
        async def request(self, endpoint: str, body: Any = None, *, timeout: Any = None) -> Any:
            if endpoint.startswith("STREAM"):
                sources = [{"name": "UP"}] if "UP" in str(body) else []
                return {"config": {"name": "S", "sources": sources}, "state": {}}
            return {"config": {"name": "c"}}

    js.api = Old(js.connection, "$JS.API", 5)
    transform = SubjectTransform(src="a", dest="b")
    with pytest.raises(FeatureError, match="subject_transform"):
        await js.create_stream(name="S", subject_transform=transform)
    with pytest.raises(FeatureError, match="sources"):
        await js.create_stream(name="S", sources=[StreamSource(name="DOWN")])
    with pytest.raises(FeatureError, match="subject_transforms"):
        await js.create_stream(
            name="S", sources=[StreamSource(name="UP", subject_transforms=[transform])]
        )
    with pytest.raises(FeatureError, match="filter_subjects"):
        await js.create_consumer("S", filter_subjects=["a", "b"])


async def test_subjects_are_counted_page_by_page(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 7)
    counts = {subject: count async for subject, count in stream.subjects()}
    assert counts == {f"{stream.name}.{number}": 3 - (number > 0) for number in range(3)}
    assert [pair async for pair in stream.subjects("nothing.*")] == []
    some = [pair async for pair in js.stream_subjects(stream.name, f"{stream.name}.2")]
    assert some == [(f"{stream.name}.2", 2)]


@pytest.mark.parametrize("allow_direct", [False, True])
async def test_headers_may_be_left_out(
    js: JetStream, make_stream: MakeStream, allow_direct: bool
) -> None:
    stream = await make_stream(allow_direct=allow_direct)
    await js.publish(f"{stream.name}.a", "one", headers={"Kind": "x"})
    found = await stream.get_message(1, headers=False)
    assert (found.stream, found.data, list(found.headers.items())) == (stream.name, b"one", [])
    last = await stream.get_last_message(f"{stream.name}.a", headers=False)
    assert last.sequence == (0 if allow_direct else 1)


async def test_a_subject_that_cannot_be_is_not_looked_for(stream: Stream) -> None:
    js = stream.jetstream
    for asking in (
        js.stream_name_by_subject(""),
        js.stream_by_subject("a..b"),
        stream.get_last_message("a b"),
        stream.get_next(1, ""),
    ):
        with pytest.raises(InvalidSubjectError):
            await asking


async def test_a_timeout_may_be_set_later(js: JetStream) -> None:
    assert js.timeout == 5.0
    js.timeout = timedelta(milliseconds=50)  # type: ignore[assignment]
    assert js.timeout == js.api.timeout == 0.05
    await js.connection.subscribe("$JS.API.NOBODY")
    with pytest.raises(TimeoutError):
        await js.api.request("NOBODY")


async def test_a_context_deletes_messages_by_name(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    await js.delete_message(stream.name, 1)
    await js.delete_message(stream.name, 2, secure=True)
    assert (await stream.info()).state.messages == 1


async def test_a_handle_may_be_had_without_asking(js: JetStream, make_stream: MakeStream) -> None:
    stream = await make_stream(allow_direct=True)
    await fill(js, stream, 2)
    async with await js.connection.subscribe(f"$JS.API.STREAM.INFO.{stream.name}") as asked:
        handle = js.stream_handle(stream.name)
        assert (await handle.get_message(2, direct=True)).sequence == 2
        assert (await handle.get_message(1)).sequence == 1
        consumer = await handle.create_consumer(name="c")
        assert len(await consumer.fetch_no_wait(5)) == 2
        assert await handle.purge() == 2
        assert asked.pending == 0
    assert (await handle.info()).config.allow_direct


async def test_a_domain_is_in_what_the_server_says(
    make_server: Callable[[str], OwnServer],
) -> None:
    server = make_server("jetstream { domain: hub }")
    async with await slipstream.connect(server.url) as nc:
        js = nc.jetstream(domain="hub")
        stream = await js.create_stream(name="S", subjects=["s.>"])
        assert (await js.account_info()).domain == "hub"
        assert (await js.publish("s.a", b"x")).domain == "hub"
        assert (await stream.info()).domain == "hub"
        consumer = await stream.create_consumer(name="c")
        (message,) = await consumer.fetch(1, timeout=5)
        await message.ack_sync()
        with pytest.raises(JetStreamNotEnabledError):
            await nc.jetstream(domain="other").account_info()


async def test_what_is_likely_is_asked_first(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    name = stream.name
    config = stream.config
    await stream.delete()
    verbs = []
    async with await nc.subscribe("$JS.API.*.*.>") as asked:
        await nc.flush()
        for _ in range(2):
            await js.create_or_update_stream(config)
            await js.get_or_create_stream(config)
            await js.get_or_create_consumer(name, name="c")
        await nc.flush()
        while asked.pending:
            message = await asked.next(timeout=5)
            if name in message.subject:
                verbs.append(".".join(message.subject.split(".")[2:4]))
    await js.delete_stream(name)
    first = ["STREAM.UPDATE", "STREAM.CREATE", "STREAM.INFO", "CONSUMER.INFO", "CONSUMER.CREATE"]
    assert verbs == [*first, "STREAM.UPDATE", "STREAM.INFO", "CONSUMER.INFO"]


async def test_one_filter_stands_in_the_subject_of_the_request(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    subject = f"$JS.API.CONSUMER.CREATE.{stream.name}"
    async with await nc.subscribe(f"{subject}.>") as asked:
        await nc.flush()
        await stream.create_consumer(name="one", filter_subject=f"{stream.name}.*")
        await stream.create_consumer(name="all")
        first = (await asked.next(timeout=5)).subject
        second = (await asked.next(timeout=5)).subject
    assert (first, second) == (f"{subject}.one.{stream.name}.*", f"{subject}.all")


async def test_the_long_form_of_acknowledgements_works_too(
    make_server: Callable[[str], OwnServer],
) -> None:
    server = make_server("jetstream { domain: hub }\nfeature_flags { js_ack_fc_v2: true }")
    async with await slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        await js.publish("s.a", b"x")
        consumer = await stream.create_consumer(name="c")
        (message,) = await consumer.fetch(1, timeout=5)
        if message.reply.startswith("$JS.ACK.S.c."):
            pytest.skip("this server has only the short form")
        assert (message.metadata.domain, message.metadata.stream) == ("hub", "S")
        assert len(message.metadata.account_hash) == 8
        await message.ack_sync()
        assert (await consumer.info()).ack_floor.stream_seq == 1
        pushed = await stream.create_push_consumer(flow_control=True, idle_heartbeat=1)
        async with pushed.messages() as messages:
            assert await messages.next(timeout=5) is not None


async def test_a_mirror_and_a_source_follow_a_stream(
    js: JetStream, make_stream: MakeStream
) -> None:
    origin = await make_stream()
    await fill(js, origin, 4)
    mirror = await or_skip(make_stream(subjects=[], mirror=StreamSource(name=origin.name)))
    transform = SubjectTransform(src=f"{origin.name}.*", dest="copied.{{wildcard(1)}}")
    copy = await make_stream(
        subjects=[],
        sources=[StreamSource(name=origin.name, subject_transforms=[transform], opt_start_seq=2)],
    )
    await until(lambda: _has(mirror, 4))
    await until(lambda: _has(copy, 3))
    assert {subject async for subject, _ in copy.subjects()} == {f"copied.{n}" for n in range(3)}
    info = await mirror.info()
    assert info.mirror is not None
    assert (info.mirror.name, info.mirror.lag) == (origin.name, 0)
    assert [source.name for source in (await copy.info()).sources] == [origin.name]
    promoted = await mirror.update(mirror=None, subjects=["promoted.>"])
    assert (promoted.config.mirror, promoted.config.subjects) == (None, ["promoted.>"])


async def _has(stream: Stream, messages: int) -> bool:
    return (await stream.info()).state.messages == messages
