"""What a task says when there is no server."""

import socket

import pytest

from slipstream.client.errors import TimeoutError
from slipstream.spark.options import SourceOptions, parse
from slipstream.spark.streams import connect


async def test_a_task_that_waits_in_vain_says_for_what_and_hides_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        given = {"servers": url, "retryTimeout": "0.2", "user": "ada", "password": "tr0ub4dor"}
        options = parse(SourceOptions, given)
        with pytest.raises(TimeoutError, match=r"no server has answered.*retryTimeout") as caught:
            await connect(options, "test", patient=True)
    assert url in str(caught.value)
    assert "tr0ub4dor" not in str(caught.value)
