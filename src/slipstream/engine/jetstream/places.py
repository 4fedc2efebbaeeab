"""Places for streams that are created: nobody waits on the loop for the disk to make one.

    create ──> there is no place: a job makes it ──> all who wait ask again ──> one takes it

Who asks for a name while its place is being made waits for the same job. When it has run they ask
again in the order in which they came, so that all is checked again: meanwhile another stream may
have taken a subject, or the name. A place that nobody takes then is removed again.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from slipstream.engine.commit.commit import Commit
from slipstream.engine.commit.not_yet import NotYetError
from slipstream.log.stream_place import StreamPlace

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream


class Places:
    """The places of one account's streams to come."""

    def __init__(self, js: "JetStream") -> None:
        self._js = js
        self._jobs: dict[str, PlaceJob] = {}  # by the stream's name

    @property
    def commit(self) -> Commit:
        """Runs the jobs."""
        return self._js.engine.commit

    def take(self, name: str) -> StreamPlace:
        """The place of a new stream, which is not there. Raises `NotYetError`; what making it has
        raised."""
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = PlaceJob(self, name, self._plan(name))
        if not job.has_run:
            raise NotYetError(f"a place for stream {name}", job.wait)
        if job.error is not None:
            raise job.error
        del self._jobs[name]
        return job.place

    def _plan(self, name: str) -> StreamPlace:
        js = self._js
        assert js.store is not None, "a stream in memory takes no place"
        store = js.store.stream(js.account.name, name)
        return StreamPlace(store, js.new_created(), js.state.leaving(store.path))

    def forget(self, job: "PlaceJob") -> None:
        """All who have waited have asked again: a place that is left goes."""
        if self._jobs.get(job.name) is job:
            del self._jobs[job.name]
            if job.error is None:
                self.discard(job.place)

    def discard(self, place: StreamPlace) -> None:
        """Have a place removed to which no stream has come, or none that could be made durable."""
        self.commit.run_aside(DiscardJob(place))

    def stop(self) -> None:
        """No stream is created any more. Jobs that have run leave their directories to the next
        start."""
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.stop()


class PlaceJob:
    """Makes a place."""

    def __init__(self, places: Places, name: str, place: StreamPlace) -> None:
        self.name = name
        self.place = place
        self.error: Exception | None = None
        self.has_run = False
        self._places = places
        self._waiting: list[Callable[[], None]] = []
        self._is_stopped = False

    def wait(self, again: Callable[[], None]) -> None:
        """Call `again` once it has run; the first who waits has it begin."""
        self._waiting.append(again)
        if len(self._waiting) == 1:
            self._places.commit.run_aside(self)

    def run(self) -> None:
        """Make the place, and keep the error; never raises."""
        try:
            self.place.make()
        except Exception as error:  # whatever it is, those who ask again hear of it
            self.error = error

    def finish(self) -> None:
        """Have all who wait ask again; where JetStream has stopped, they find that."""
        self.has_run = True
        if self._is_stopped:
            self.place.close()
        with ExitStack() as stack:  # whatever befalls one of them, the others are asked, too
            stack.callback(self._places.forget, self)
            for again in reversed(self._waiting):
                stack.callback(again)

    def stop(self) -> None:
        """Nobody takes the place. Nothing runs on the thread."""
        self._is_stopped = True
        self.place.close()


class DiscardJob:
    """Removes a place."""

    def __init__(self, place: StreamPlace) -> None:
        self._place = place

    def run(self) -> None:
        """Remove it. Never raises: the next start does it, or who takes the name."""
        with suppress(OSError):
            self._place.discard()

    def finish(self) -> None:
        """Nothing follows."""
