"""A place in S3: moto, on this machine, is the bucket."""

from collections.abc import Awaitable, Callable

import pytest

from slipstream.backups import open_place
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import BackupError
from tests.backups.test_runs import publish, stored

MakeStream = Callable[..., Awaitable[Stream]]


@pytest.fixture
def bucket(s3_bucket: str) -> str:
    return f"{s3_bucket}/streams/S"


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
