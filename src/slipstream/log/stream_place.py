"""Where a stream is about to be created: its directory, and the file of its first segment.

A place is made and discarded on the thread beside the batches, where nothing else comes and goes by
the name meanwhile. What a crash leaves of it is as `stream_store` says of streams that were not
durable, and goes with the next start.
"""

from slipstream.log.ahead import SpareFile
from slipstream.log.commit_log import Removal
from slipstream.log.file_log import FileLog
from slipstream.log.stream_store import StreamStore


class StreamPlace:
    """The place of the stream that `store` belongs to. `leaving`: the directory of an earlier one
    of its name may be on its way out."""

    def __init__(self, store: StreamStore, created: int, leaving: Removal | None) -> None:
        self.store = store
        self.created = created  # when (ns since the epoch)
        self._leaving = leaving
        self._spare: SpareFile | None = None
        store.belongs_to(created)

    def make(self) -> None:
        """Make it. Blocks; raises OSError, `StorageError`. On a full disk it may have no file: the
        log opens one when there is space."""
        if self._leaving is not None:
            self._leaving.free()
        self.store.make()
        spare = self.store.first_file()
        spare.make()
        self._spare = spare

    def begin_log(self, first_seq: int) -> FileLog:
        """The log of the stream, which is created now. No call of the disk."""
        log = self.store.begin_log(first_seq)
        if self._spare is not None and log.take_spare(self._spare):
            self._spare = None
        return log

    def close(self) -> None:
        """Release the file, if nobody has taken it."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def discard(self) -> None:
        """Remove it, unless another stream has the name by now. Blocks; raises OSError."""
        self.close()
        self.store.discard_own()
