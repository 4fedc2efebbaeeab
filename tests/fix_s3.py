"""A bucket of S3 on this machine: moto's, in a process of its own.

Of its own, because some clients wait for an answer without letting other threads of Python run.
"""

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

_SERVER = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of a server."""
    words = [sys.executable, "-c", _SERVER]
    server = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    host, port = server.stdout.readline().split()
    yield f"http://{host}:{port}"
    server.communicate()


@pytest.fixture
def s3_bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; how it is reached is in the environment."""
    import boto3  # takes a while, and few tests need it

    for name, value in (
        ("AWS_ENDPOINT_URL", s3_server),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    name = uuid.uuid4().hex
    boto3.client("s3", endpoint_url=s3_server).create_bucket(Bucket=name)
    return f"s3://{name}"
