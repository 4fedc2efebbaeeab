"""CRC-32: what every library that may be there has, whichever build asks for it."""

import subprocess
import sys
import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire import checksum
from tests.plain_twin import plain_twin

BUILDS = [checksum, plain_twin("slipstream.wire.checksum")]

# A record is written with one library, and with the other one after that.
ENCODE = """
import sys
sys.modules.update({without: None for without in sys.argv[1:]})
from slipstream.log.record import MESSAGE, encode
from slipstream.wire.buffer import OutBuffer
out = OutBuffer()
encode(out, MESSAGE, 7, 1, 2, b"a.subject", b"x" * 1000, 0, 0, 1000)
print(out.take().hex())
"""


@pytest.mark.parametrize("module", BUILDS)
@given(data=st.binary(max_size=600), seed=st.integers(0, 2**32 - 1))
def test_it_is_that_of_zlib(module: ModuleType, data: bytes, seed: int) -> None:
    assert module.crc32(data) == zlib.crc32(data)
    assert module.crc32(data, seed) == zlib.crc32(data, seed)
    assert module.crc32(memoryview(data), seed) == zlib.crc32(data, seed)
    middle = len(data) // 2
    assert module.crc32(data[middle:], module.crc32(data[:middle])) == zlib.crc32(data)


@pytest.mark.parametrize("module", BUILDS)
def test_what_is_no_bytes_is_refused(module: ModuleType) -> None:
    with pytest.raises(TypeError):
        module.crc32("text")


def test_records_are_the_same_without_the_quick_library() -> None:
    records = [
        subprocess.run(
            [sys.executable, "-c", ENCODE, *without], check=True, capture_output=True, text=True
        ).stdout
        for without in ([], ["isal"])
    ]
    assert records[0] == records[1]
    assert len(bytes.fromhex(records[0])) > 1000
