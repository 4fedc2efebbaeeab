"""A place in S3: moto, on this machine, is the bucket."""

import uuid
from collections.abc import Awaitable, Callable, Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from slipstream.backups import open_place
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import BackupError
from tests.backups.test_runs import publish, stored

MakeStream = Callable[..., Awaitable[Stream]]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket; how it is reached is in the environment."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    name = uuid.uuid4().hex  # all of moto's servers in a process share their buckets
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket=name)
    try:
        yield f"s3://{name}/streams/S"
    finally:
        server.stop()


async def test_a_stream_is_backed_up_to_s3_and_comes_back(
    js: JetStream, make_stream: MakeStream, bucket: str
) -> None:
    name = (await make_stream(storage="file")).cached_info.config.name
    place = open_place(bucket)
    for count in (30, 10):
        await publish(js, name, count)
        assert (await place.back_up(js, name)).run.added == count
    assert str(place.store) == bucket
    assert not await place.store.put_new((await place.store.names("parts/"))[0], b"another")
    await place.check()
    await place.prune(keep=1)
    messages = await stored(js, name)
    await js.delete_stream(name)
    await open_place(bucket).restore(js)
    assert await stored(js, name) == messages
    with pytest.raises(BackupError, match="is no backup"):
        await open_place(bucket.replace("streams", "none")).check()
    with pytest.raises(BackupError, match="s3://none/x"):
        await open_place("s3://none/x").check()
