"""A source and sink that stop where a test wants it, so that it kills just there."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.spark.datasource import JetStreamDataSource
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.writing import StreamWriter, Written
from slipstream.spark.source.batch import BatchReader
from slipstream.spark.source.streaming import StreamReader

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import InputPartition, WriterCommitMessage
    from pyspark.sql.types import StructType

WAIT_SECONDS = 240.0


class Gate:
    """The first process that comes stops here until a test opens it. A directory of files."""

    def __init__(self, directory: "Path | str") -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def is_first(self) -> bool:
        """Whether nobody has come before."""
        try:
            (self.directory / "taken").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def stop(self) -> None:
        """Stop here, if nobody has before, and tell the process id."""
        if self.is_first():
            (self.directory / "new").write_text(str(os.getpid()))
            (self.directory / "new").rename(self.directory / "stopped")
            _wait_for(self.directory / "open")

    def wait(self) -> int:
        """For the test: wait until somebody has stopped; its process id."""
        _wait_for(self.directory / "stopped")
        return int((self.directory / "stopped").read_text())

    def open(self) -> None:
        """For the test: let it go on."""
        (self.directory / "open").touch()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing has made {path} in {WAIT_SECONDS} s")
        time.sleep(0.01)


def _gated(batches: "Iterator[pyarrow.RecordBatch]", gate: Gate) -> "Iterator[pyarrow.RecordBatch]":
    for batch in batches:
        yield batch
        gate.stop()


class GatedBatchReader(BatchReader):
    """Stops after its first batch."""

    gate: Gate

    def read(self, partition: "InputPartition") -> "Iterator[pyarrow.RecordBatch]":
        return _gated(super().read(partition), self.gate)


class GatedStreamReader(StreamReader):
    """Stops after its first batch."""

    gate: Gate

    def read(self, partition: "InputPartition") -> "Iterator[pyarrow.RecordBatch]":
        return _gated(super().read(partition), self.gate)


class GatedWriter(StreamWriter):
    """Stops when all is written, before the query commits it."""

    gate: Gate

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        self.gate.stop()
        super().commit(messages, batchId)


class DyingWriter(StreamWriter):
    """Its first attempt is killed after the first batch of rows."""

    gate: Gate

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        return super().write(self._dying(iterator))

    def _dying(self, batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        for count, batch in enumerate(batches):
            if count == 2 and self.gate.is_first():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


class GatedSource(JetStreamDataSource):
    """The format "gated": "jetstream" with the options `gate`, a directory, and `writer`."""

    def __init__(self, options: dict[str, Any]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self.gate = Gate(given.pop("gate"))
        self.kind = {"dying": DyingWriter, "gated": GatedWriter}[given.pop("writer", "gated")]
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "gated"

    def reader(self, schema: "StructType") -> GatedBatchReader:
        made = GatedBatchReader(schema, self._source_options())
        made.gate = self.gate
        return made

    def streamReader(self, schema: "StructType") -> GatedStreamReader:
        made = GatedStreamReader(schema, self._source_options())
        made.gate = self.gate
        return made

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamWriter:
        from slipstream.spark.options import parse

        own = ("path", "checkpointlocation")
        given = {name: value for name, value in self.options.items() if name not in own}
        made = self.kind(schema, parse(SinkOptions, given))
        made.gate = self.gate
        return made
