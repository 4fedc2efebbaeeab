"""What a run adds to a place, and what comes back from it, from and to both servers."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from slipstream.backups import Manifest, Place, Point, Store, reading
from slipstream.backups import manifest as manifests
from slipstream.backups import place as places
from slipstream.client.jetstream import JetStream, Stream, StreamConfig
from slipstream.client.jetstream.errors import ApiError, BackupError, MessageNotFoundError
from slipstream.model.times import Timestamp

MakeStream = Callable[..., Awaitable[Stream]]
KINDS: list[dict[str, Any]] = [
    {"allow_direct": True},
    {"allow_direct": False},
    {"allow_direct": False, "retention": "workqueue"},
]


async def publish(js: JetStream, name: str, count: int, word: str = "body") -> None:
    """Messages with and without headers."""
    for i in range(count):
        headers = {"Kind": f"{word} {i}", "Other": "1"} if i % 3 == 0 else None
        await js.publish_async(f"{name}.{i % 5}", f"{word} {i}".encode() * 9, headers=headers)
    await js.publish_async_complete()


async def stored(js: JetStream, name: str) -> dict[int, Any]:
    """Every message as the API shows it."""
    found: dict[int, Any] = {}
    last = (await js.stream_info(name)).state.last_seq
    for seq in range(1, last + 1):
        try:
            answer = await js.api.request(f"STREAM.MSG.GET.{name}", {"seq": seq})
        except MessageNotFoundError:
            continue
        found[seq] = answer["message"]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_runs_add_up_to_the_stream(
    js: JetStream, make_stream: MakeStream, place: Place, kind: dict[str, Any], storage: str
) -> None:
    stream = await make_stream(storage=storage, **kind)
    name = stream.cached_info.config.name
    await publish(js, name, 300)
    for seq in (1, 2, 7, 300):
        await js.delete_message(name, seq)
    first = await place.back_up(js, name)
    assert (first.run.added, first.run.messages, first.is_new_generation) == (296, 296, False)
    await publish(js, name, 50, "later")
    await js.delete_message(name, 20)
    second = await place.back_up(js, name)
    assert (second.run.added, second.run.messages) == (50, 345)
    third = await place.back_up(js, name)
    assert (third.run.added, third.run.messages) == (0, 345)
    before = await js.stream_info(name, deleted_details=True)
    messages = await stored(js, name)
    await js.delete_stream(name)
    restored = await place.restore(js)
    assert (await js.stream_info(name, deleted_details=True)).state == before.state
    assert restored.info.config.subjects == before.config.subjects
    assert await stored(js, name) == messages
    assert (await place.check()).stream == name


async def test_every_kind_of_store_holds_a_backup(
    js: JetStream, make_stream: MakeStream, store: Store
) -> None:
    name = (await make_stream()).cached_info.config.name
    place = Place(store)
    assert not await place.is_backup()
    for count in (10, 20):
        await publish(js, name, count)
        await place.back_up(js, name)
    assert await place.is_backup()
    messages = await stored(js, name)
    await place.check()
    await js.delete_stream(name)
    await place.restore(js)
    assert await stored(js, name) == messages
    assert await store.put_new("parts/x", b"1")
    assert not await store.put_new("parts/x", b"2")
    assert await store.get("parts/x") == b"1"
    await store.delete(["parts/x", "parts/none"])
    with pytest.raises(BackupError, match="parts/x cannot be read"):
        await store.get("parts/x")
    below = store.below("other")
    assert await below.put_new("a/b", b"")
    assert await below.names("") == ["a/b"]
    assert "other/a/b" in await store.names("")
    assert await store.names("nothing/") == []


async def test_consumers_come_back_where_all_before_was_acknowledged(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    stream = await make_stream(storage="file")
    name = stream.cached_info.config.name
    await publish(js, name, 20)
    consumer = await stream.create_consumer(durable_name="c", metadata={"a": "b"})
    taken = list(await consumer.fetch(6))
    for message in (*taken[:3], taken[4]):
        await message.ack_sync()
    quiet = await stream.create_consumer(durable_name="quiet", ack_policy="none")
    assert len(list(await quiet.fetch(5))) == 5
    await place.back_up(js, name)
    await js.delete_stream(name)
    restored = await place.restore(js)
    assert restored.has_consumers
    info = await js.consumer_info(name, "c")
    assert (info.ack_floor.stream_seq, info.num_pending, info.num_ack_pending) == (3, 17, 0)
    assert info.config.metadata["a"] == "b"
    again = await (await js.consumer(name, "c")).fetch(1)
    assert [message.metadata.stream_sequence for message in again] == [4]
    assert (await js.consumer_info(name, "quiet")).num_pending == 15
    await js.delete_stream(name)


async def test_a_stream_comes_back_as_it_was_at_a_sequence_or_time(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    stream = await make_stream(storage="file")
    name = stream.cached_info.config.name
    await stream.create_consumer(durable_name="c")
    await publish(js, name, 10)
    await place.back_up(js, name)
    for _ in range(10):  # each at a time of its own
        await js.publish(f"{name}.1", b"")
    await js.delete_message(name, 3)
    at_13 = Timestamp.parse((await stored(js, name))[13]["time"])
    assert at_13 is not None
    created = (await js.stream_info(name)).created
    assert created is not None
    await place.back_up(js, name)
    await js.delete_stream(name)

    copies: list[str] = []

    async def made(**point: Any) -> tuple[list[int], bool]:
        copies.append(f"{name}-{len(copies)}")  # nats-server is slow to forget a name

        def change(config: StreamConfig) -> None:
            config.name = copies[-1]

        found = await place.restore(js, Point(**point), change=change)
        sequences = list(await stored(js, copies[-1]))
        assert found.info.state.last_seq == sequences[-1]
        await js.delete_stream(copies[-1])
        return sequences, found.has_consumers

    # Message 3 went after the first run: until the second one it may have been there.
    assert await made(sequence=13) == (list(range(1, 14)), True)
    assert await made(time=at_13) == (list(range(1, 14)), True)
    assert await made(sequence=5) == ([1, 2, 3, 4, 5], False)
    everything = [1, 2, *range(4, 21)]
    assert await made(sequence=20) == (everything, True)
    assert await made(time=at_13 + timedelta(days=1)) == (everything, True)
    for wrong, what in (
        (Point(sequence=21), "ends at sequence 20"),
        (Point(time=created - timedelta(seconds=1)), "created later"),
        (Point(sequence=1, time=created), "not both"),
    ):
        with pytest.raises(BackupError, match=what):
            await place.restore(js, wrong)


async def test_it_may_come_back_with_another_configuration(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = (await make_stream()).cached_info.config.name
    await publish(js, name, 10)
    await place.back_up(js, name, consumers=False)

    def change(config: StreamConfig) -> None:
        config.name, config.subjects = name + "-copy", ["copy." + name]

    with pytest.raises(ApiError) as there:
        await place.restore(js)
    assert there.value.err_code == 10130
    restored = await place.restore(js, change=change)
    assert (restored.info.config.name, restored.info.state.messages) == (name + "-copy", 10)
    await js.delete_stream(name + "-copy")


async def test_a_stream_that_was_made_anew_is_kept_apart(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    stream = await make_stream(storage="file")
    name = stream.cached_info.config.name
    await publish(js, name, 10, "old")
    old = await stored(js, name)
    done = await place.back_up(js, name)
    await js.delete_stream(name)
    await make_stream(name=name, subjects=[f"{name}.>"], storage="file")
    await publish(js, name, 20, "new")
    new = await stored(js, name)
    again = await place.back_up(js, name)
    assert again.is_new_generation
    assert again.run.added == 20
    await place.check()
    await js.delete_stream(name)
    # Under other names: nats-server may leave the directory of a deleted stream, and then takes no
    # archive for it.
    first = Point(time=Timestamp.from_ns(done.run.time))
    for other, point, messages in (("-new", Point(), new), ("-old", first, old)):

        def rename(config: StreamConfig, other: str = other) -> None:
            config.name = name + other

        await place.restore(js, point, change=rename)
        assert await stored(js, name + other) == messages
        await js.delete_stream(name + other)


async def test_a_stream_that_was_set_back_is_kept_apart(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    """Its disk has come back from a copy: it was created at the same time, and is another one."""
    name = (await make_stream(storage="file")).cached_info.config.name
    await publish(js, name, 10)
    await place.back_up(js, name)
    await js.delete_stream(name)
    again = await make_stream(name=name, subjects=[f"{name}.>"], storage="file")
    found = await place.manifest()
    found.generations[-1].created = again.cached_info.created.ns  # type: ignore[union-attr]
    await manifests.commit(place.store, found)
    for count in (5, 10):  # less than there was, and more
        await publish(js, name, count)
        assert (await place.back_up(js, name)).is_new_generation == (count == 5)
    found = await place.manifest()
    found.generations = found.generations[:1]
    await manifests.commit(place.store, found)
    assert (await place.back_up(js, name)).is_new_generation
    await place.check()


async def test_a_place_is_of_one_stream(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    one, other = [(await make_stream()).cached_info.config.name for _ in range(2)]
    await place.back_up(js, one)
    with pytest.raises(BackupError, match=f"has the backup of stream {one}"):
        await place.back_up(js, other)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_messages_that_go_while_they_are_read_are_no_damage(
    js: JetStream,
    make_stream: MakeStream,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    kind: dict[str, Any],
) -> None:
    monkeypatch.setattr(reading, "BATCH_MESSAGES", 10)
    name = (await make_stream(**kind)).cached_info.config.name
    await publish(js, name, 100)
    gone = {55, 56, 80, 100}
    reads = reading.Reader.read

    async def read(self: reading.Reader, first: int, last: int) -> reading.Batch:
        if first > 30 and gone:
            while gone:
                await js.delete_message(name, gone.pop())
            await js.purge_stream(name, sequence=41)
        return await reads(self, first, last)

    monkeypatch.setattr(reading.Reader, "read", read)
    done = await place.back_up(js, name)
    assert done.run.messages == done.run.added <= 96
    await place.check()
    messages = await stored(js, name)
    await js.delete_stream(name)
    await place.restore(js)
    assert {seq: one for seq, one in (await stored(js, name)).items() if seq > 40} == messages


async def test_what_a_replica_that_lags_does_not_have_is_asked_of_the_leader(
    js: JetStream, make_stream: MakeStream, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = (await make_stream(allow_direct=True)).cached_info.config.name
    await publish(js, name, 50)

    class Lagging(reading.DirectBatch):
        def add(self, seq: int, *about: Any) -> None:
            if seq < 20 or 25 < seq < 40:
                super().add(seq, *about)
            else:
                self.last = seq

    monkeypatch.setattr(reading, "DirectBatch", Lagging)
    done = await place.back_up(js, name)
    assert done.run.messages == done.run.added == 50
    await place.check()


async def test_a_server_without_batches_is_asked_otherwise(
    js: JetStream, make_stream: MakeStream, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-server before 2.11 takes a batched direct get for one of a single message."""
    name = (await make_stream(allow_direct=True)).cached_info.config.name
    await publish(js, name, 30)
    answers = reading.Reader._answers

    async def of_old(self: Any, batch: Any, endpoint: str, asked: Any, timeout: float) -> Any:
        if "DIRECT" in endpoint:
            asked = {"seq": asked["seq"]}
        return await answers(self, batch, endpoint, asked, timeout)

    monkeypatch.setattr(reading.Reader, "_answers", of_old)
    assert (await place.back_up(js, name)).run.added == 30
    await place.check()


async def test_a_stream_without_room_for_a_consumer_is_read_without_one(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    stream = await make_stream(allow_direct=False, max_consumers=1)
    await stream.create_consumer(durable_name="c")
    await publish(js, stream.name, 30)
    assert (await place.back_up(js, stream.name)).run.added == 30


async def test_a_stream_that_is_made_anew_while_it_is_read_is_refused(
    js: JetStream, make_stream: MakeStream, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = (await make_stream()).cached_info.config.name
    await publish(js, name, 10)
    reads = reading.Reader.read

    async def read(self: reading.Reader, first: int, last: int) -> reading.Batch:
        await js.delete_stream(name)
        await make_stream(name=name, subjects=[f"{name}.>"])
        await publish(js, name, 10)
        return await reads(self, first, last)

    monkeypatch.setattr(reading.Reader, "read", read)
    with pytest.raises(BackupError, match="made anew while it was read"):
        await place.back_up(js, name)
    assert not await place.is_backup()


async def test_where_too_much_is_removed_to_ask_for_it_comes_back(
    js: JetStream, make_stream: MakeStream, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "GAPS_MAX", 2)
    name = (await make_stream(allow_direct=True)).cached_info.config.name
    await publish(js, name, 30)
    await js.delete_message(name, 5)
    assert (await place.back_up(js, name)).run.knows_gaps
    for seq in (10, 11, 12):
        await js.delete_message(name, seq)
    await publish(js, name, 5)
    assert not (await place.back_up(js, name)).run.knows_gaps
    await place.check()
    await js.delete_stream(name)
    await place.restore(js)
    assert list(await stored(js, name)) == [*range(1, 5), *range(6, 36)]


async def test_an_empty_stream_has_a_backup_too(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = (await make_stream(storage="file")).cached_info.config.name
    await place.back_up(js, name)
    await publish(js, name, 10)
    await js.purge_stream(name)
    done = await place.back_up(js, name)
    assert (done.run.messages, done.run.added, done.run.last_seq) == (0, 0, 10)
    await place.check()
    await js.delete_stream(name)
    restored = await place.restore(js)
    assert (restored.info.state.messages, restored.info.state.last_seq) == (0, 10)


async def test_of_two_runs_at_once_the_place_is_whole(
    js: JetStream, make_stream: MakeStream, store: Store
) -> None:
    name = (await make_stream()).cached_info.config.name
    place = Place(store)
    await publish(js, name, 40)
    runs = [place.back_up(js, name) for _ in range(4)]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    refused = [one for one in ended if isinstance(one, BaseException)]
    assert len(refused) < 4
    assert all("run it again" in str(one) for one in refused)
    found = await place.check()
    assert sum(len(one.runs) for one in found.generations) == 4 - len(refused)
    assert sum(part.messages for part in found.generations[0].parts) == 40


async def test_a_run_whose_manifest_is_long_superseded_is_refused(place: Place) -> None:
    """Also where the number of its manifest has been tidied away, and is free."""
    await manifests.commit(place.store, Manifest(stream="S"))
    late = await manifests.load(place.store)
    assert late is not None
    for _ in range(10):
        found = await manifests.load(place.store)
        assert found is not None
        await manifests.commit(place.store, found)
        await manifests.tidy(place.store, found)
    names = await place.store.names("manifests/")
    assert len(names) == manifests.KEPT + 1
    with pytest.raises(BackupError, match="another run"):
        await manifests.commit(place.store, late)
    assert await place.store.names("manifests/") == names
