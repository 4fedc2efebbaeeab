"""A worker keeps the connection of its last task, as long as it stands and means the same."""

from collections.abc import Iterator

import pytest

from slipstream.errors import Error
from slipstream.spark.options import SourceOptions, parse
from slipstream.spark.source import task_connection as tested
from slipstream.spark.source.task_connection import TaskConnection, task_connection
from tests.spark.mortal_servers import MortalServer


class InTask:
    """Stands for Spark's TaskContext, where a task runs."""

    @staticmethod
    def get() -> object:
        """Any context."""
        return object()


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is kept goes with the test, as it would with its worker."""
    monkeypatch.setattr(tested, "TaskContext", InTask)
    yield
    while tested._kept:
        tested._kept.pop().close()


def options_of(url: str, **more: str) -> SourceOptions:
    """Options of a read; what is read is of no account here."""
    return parse(SourceOptions, {"servers": url, "stream": "S", **more})


def use(options: SourceOptions) -> tuple[TaskConnection, object]:
    """What a task is given: its loop's owner, and the connection."""
    with task_connection(options) as worker:
        return worker, worker.run(worker.opened())


def test_the_next_task_has_the_same_connection(jetstream_url: str) -> None:
    _, first = use(options_of(jetstream_url))
    _, second = use(options_of(jetstream_url))
    assert first is second


def test_other_options_have_a_connection_of_their_own(jetstream_url: str) -> None:
    _, first = use(options_of(jetstream_url))
    _, second = use(options_of(jetstream_url, requestTimeout="4"))
    assert first is not second
    assert len(tested._kept) == 1


def test_two_reads_of_one_task_have_one_each(jetstream_url: str) -> None:
    options = options_of(jetstream_url)
    with task_connection(options) as outer, task_connection(options) as inner:
        assert outer.run(outer.opened()) is not inner.run(inner.opened())
    assert len(tested._kept) == 1


def test_a_task_that_fails_leaves_none(jetstream_url: str) -> None:
    async def fails(worker: TaskConnection) -> None:
        await worker.opened()
        raise Error("as any")

    with pytest.raises(Error), task_connection(options_of(jetstream_url)) as worker:
        worker.run(fails(worker))
    assert not tested._kept


def test_a_connection_that_broke_between_two_tasks_is_replaced(mortal_server: MortalServer) -> None:
    options = options_of(mortal_server.url)
    use(options)
    mortal_server.kill()
    mortal_server.revive()
    with task_connection(options) as worker:
        connection = worker.run(worker.opened())
        worker.run(connection.flush())


def test_none_is_kept_outside_of_a_task(
    jetstream_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InTask, "get", lambda: None)
    use(options_of(jetstream_url))
    assert not tested._kept
