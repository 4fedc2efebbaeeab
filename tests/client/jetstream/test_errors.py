"""Each kind of error is a class of its own, on both servers."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

import slipstream
from slipstream.client.errors import ConnectError, InvalidSubjectError, MaxPayloadError
from slipstream.client.jetstream import ErrorCode, JetStream, Schedule, Stream, errors
from slipstream.client.jetstream.errors import ApiError, JetStreamError
from tests.client.jetstream.conftest import MakeStream, or_skip
from tests.client.own_server import OwnServer
from tests.client.waiting import SOON

API_ERRORS = Path(__file__).parents[3] / "tools" / "api_errors.json"
Asking = Callable[[JetStream, Stream], Awaitable[object]]


async def _reset(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(
        name="c", deliver_policy="last_per_subject", filter_subject=f"{stream.name}.>"
    )
    await consumer.reset(5)


async def _another_configuration(js: JetStream, stream: Stream) -> None:
    await stream.create_consumer(name="c")
    await stream.create_consumer(name="c", description="x")


async def _another_deliver_policy(js: JetStream, stream: Stream) -> None:
    await stream.create_consumer(name="c")
    await stream.update_consumer(name="c", deliver_policy="new")


async def _pull_from_push(js: JetStream, stream: Stream) -> None:
    await stream.create_push_consumer(name="c")
    await stream.consumer("c")


async def _push_from_pull(js: JetStream, stream: Stream) -> None:
    await stream.create_consumer(name="c")
    await stream.push_consumer("c")


REFUSED: dict[type[Exception], Asking] = {
    errors.EmptyStreamNameError: lambda js, s: js.create_stream(name=""),
    errors.InvalidStreamNameError: lambda js, s: js.create_stream(name="a.b"),
    errors.InvalidConsumerNameError: lambda js, s: s.create_consumer(name="a.b"),
    InvalidSubjectError: lambda js, s: js.stream_name_by_subject("a b"),
    errors.StreamNotFoundError: lambda js, s: js.stream("NOTHERE"),
    errors.StreamExistsError: lambda js, s: js.create_stream(name=s.name, subjects=["other"]),
    errors.ConsumerNotFoundError: lambda js, s: s.consumer("nothere"),
    errors.ConsumerDoesNotExistError: lambda js, s: s.update_consumer(name="nothere"),
    errors.ConsumerExistsError: _another_configuration,
    errors.ConsumerCreateError: _another_deliver_policy,
    errors.NotPullConsumerError: _pull_from_push,
    errors.NotPushConsumerError: _push_from_pull,
    errors.DuplicateFilterSubjectsError: lambda js, s: s.create_consumer(
        filter_subject=f"{s.name}.a", filter_subjects=[f"{s.name}.b"]
    ),
    errors.OverlappingFilterSubjectsError: lambda js, s: s.create_consumer(
        filter_subjects=[f"{s.name}.>", f"{s.name}.b"]
    ),
    errors.EmptyFilterError: lambda js, s: s.create_consumer(filter_subjects=["", f"{s.name}.b"]),
    errors.InvalidResetError: _reset,
    errors.MessageNotFoundError: lambda js, s: s.get_message(1),
    errors.MessageDeleteError: lambda js, s: s.delete_message(99),
    errors.BadRequestError: lambda js, s: s.get_message(0),
    errors.NoStreamError: lambda js, s: js.publish("nobody.listens", retries=0),
    errors.WrongStreamError: lambda js, s: js.publish(f"{s.name}.a", expected_stream="OTHER"),
    errors.WrongLastSequenceError: lambda js, s: js.publish(
        f"{s.name}.a", expected_last_sequence=7
    ),
    errors.WrongLastMessageIdError: lambda js, s: js.publish(
        f"{s.name}.a", expected_last_message_id="x"
    ),
    errors.SchedulesDisabledError: lambda js, s: js.publish(
        f"{s.name}.a", schedule=Schedule(target=f"{s.name}.b", every=5)
    ),
    MaxPayloadError: lambda js, s: js.publish(f"{s.name}.a", bytes(2_000_000)),
}


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
async def test_a_refusal_has_its_class(
    js: JetStream, stream: Stream, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as refused:
        await REFUSED[kind](js, stream)
    assert type(refused.value) is kind


async def test_a_stream_with_all_its_consumers_says_so(make_stream: MakeStream) -> None:
    stream = await make_stream(max_consumers=1)
    await stream.create_consumer(name="one")
    with pytest.raises(errors.MaximumConsumersError):
        await stream.create_consumer(name="two")


async def test_a_push_consumer_that_is_listened_to_keeps_its_subject(stream: Stream) -> None:
    consumer = await stream.create_push_consumer(name="c", deliver_subject=f"to.{stream.name}")
    async with consumer.messages() as messages:
        await messages.next(timeout=SOON)
        with pytest.raises(errors.ConsumerNameInUseError):
            await stream.update_push_consumer(name="c", deliver_subject=f"at.{stream.name}")


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        (Schedule(target="{}.b", cron="61 * * * * *"), errors.SchedulePatternError),
        (Schedule(target="elsewhere", every=5), errors.ScheduleTargetError),
        (Schedule(target="{}.b", every=5, source="{}.b"), errors.ScheduleSourceError),
        (Schedule(target="{}.b", cron="@daily", time_zone="Mars"), errors.ScheduleTimeZoneError),
    ],
)
async def test_what_is_wrong_with_a_schedule_is_told(
    js: JetStream, make_stream: MakeStream, schedule: Schedule, kind: type[ApiError]
) -> None:
    stream = await or_skip(make_stream(allow_msg_schedules=True))
    made = Schedule(
        target=schedule.target.format(stream.name),
        every=schedule.every,
        cron=schedule.cron,
        source=schedule.source.format(stream.name),
        time_zone=schedule.time_zone,
    )
    with pytest.raises(kind) as refused:
        await js.publish(f"{stream.name}.a", b"x", schedule=made)
    assert type(refused.value) is kind


async def test_an_account_without_jetstream_says_so(
    make_server: Callable[[str], OwnServer],
) -> None:
    server = make_server(
        "accounts { A { users: [{user: a, password: a}] }, "
        "B { jetstream: enabled, users: [{user: b, password: b}] } }"
    )
    async with await slipstream.connect(server.url, user="a", password="a") as nc:
        with pytest.raises(errors.JetStreamNotEnabledForAccountError):
            await nc.jetstream().account_info()
    with pytest.raises(ConnectError):
        await slipstream.connect(server.url, user="a", password="b")


@pytest.mark.parametrize("answer", [b"no JSON", b'{"stream": "\xff"}'])
async def test_an_answer_of_somebody_else_is_told_apart(js: JetStream, answer: bytes) -> None:
    await js.connection.subscribe("answers.of.another", handler=lambda m: m.respond(answer))
    with pytest.raises(errors.InvalidAnswerError):
        await js.publish("answers.of.another", b"x", timeout=timedelta(seconds=5))


def test_every_error_of_the_server_has_a_name() -> None:
    entries = json.loads(API_ERRORS.read_text())
    assert {int(code) for code in ErrorCode} == {entry["error_code"] for entry in entries}
    assert errors.StreamNotFoundError(404, 10059, "").err_code == ErrorCode.STREAM_NOT_FOUND


def test_all_errors_are_below_one() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    own = [kind for kind in kinds if kind.__module__ == errors.__name__]
    assert all(issubclass(kind, JetStreamError) for kind in own)
    assert all(f" {kind.__name__}" in str(errors.__doc__) for kind in own if kind is not ApiError)
