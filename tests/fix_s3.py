"""A bucket of S3 on this machine: moto's."""

import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket; how it is reached is in the environment."""
    import boto3  # takes a while, and few tests need it
    from moto.server import ThreadedMotoServer

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
        yield f"s3://{name}"
    finally:
        server.stop()
