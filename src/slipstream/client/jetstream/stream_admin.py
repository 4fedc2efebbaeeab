"""Making, finding and removing streams; the half of `JetStream` that is about them."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from slipstream.client.jetstream.api import Api, check_echo
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.client.jetstream.info import AccountInfo, StreamInfo, StreamState
from slipstream.client.jetstream.names import check_stream_name, check_subject
from slipstream.client.jetstream.stream_config import StreamConfig

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream
    from slipstream.client.jetstream.stream import Stream

# What an old server ignores without a word, and users would miss.
_ECHOED = ("subject_transform", "sources", "mirror", "republish")


_ECHOED_OF_UPSTREAMS = ("filter_subject", "subject_transforms", "consumer")


class StreamAdmin:
    """Streams of the account; mixed into `JetStream`."""

    api: Api

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use. Raises `JetStreamNotEnabledError`."""
        return AccountInfo.from_wire(await self.api.request("INFO"))

    async def create_stream(
        self, config: StreamConfig | None = None, *, pedantic: bool = False, **fields: Any
    ) -> "Stream":
        """Make a stream from a `config`, from its fields, or from both.

        Succeeds if it exists with the same configuration, else raises `StreamExistsError`.
        `pedantic` has the server refuse what it would correct in silence.
        """
        return await self._put_stream("CREATE", _config_of(config, fields), pedantic)

    async def update_stream(
        self, config: StreamConfig | None = None, *, pedantic: bool = False, **fields: Any
    ) -> "Stream":
        """Give a stream another configuration: the whole of it, start from `info().config`.

        Raises `StreamNotFoundError`, and `ApiError` for what cannot be changed.
        """
        return await self._put_stream("UPDATE", _config_of(config, fields), pedantic)

    async def create_or_update_stream(
        self, config: StreamConfig | None = None, *, pedantic: bool = False, **fields: Any
    ) -> "Stream":
        """Update the stream if it exists, else make it."""
        made = _config_of(config, fields)
        try:
            return await self._put_stream("UPDATE", made, pedantic)
        except StreamNotFoundError:
            return await self._put_stream("CREATE", made, pedantic)

    async def get_or_create_stream(
        self, config: StreamConfig | None = None, **fields: Any
    ) -> "Stream":
        """The stream as it is; made if there is none."""
        made = _config_of(config, fields)
        try:
            return await self.stream(made.name)
        except StreamNotFoundError:
            return await self._put_stream("CREATE", made, False)

    async def _put_stream(self, verb: str, config: StreamConfig, pedantic: bool) -> "Stream":
        check_stream_name(config.name)
        asked = config.to_wire()
        if pedantic:
            asked["pedantic"] = True
        answer = await self.api.request(f"STREAM.{verb}.{config.name}", asked)
        info = StreamInfo.from_wire(answer)
        answered = answer["config"]
        check_echo(asked, answered, _ECHOED)
        check_echo(
            {"name": config.name, **_of_upstreams(asked)},
            _of_upstreams(answered),
            _ECHOED_OF_UPSTREAMS,
        )
        return self._stream_of(info)

    def _stream_of(self, info: StreamInfo) -> "Stream":
        from slipstream.client.jetstream.stream import Stream

        js: JetStream = self  # type: ignore[assignment]
        return Stream(js, info)

    async def stream(self, name: str) -> "Stream":
        """A stream. Raises `StreamNotFoundError`."""
        check_stream_name(name)
        return self._stream_of(await self.stream_info(name))

    def stream_handle(self, name: str) -> "Stream":
        """A stream that is taken to exist, without asking for it.

        Of use where the API of streams is forbidden: its `cached_info` has nothing but the name
        until `info` is called, and messages are read with ``direct=True`` if it allows that.
        """
        check_stream_name(name)
        return self._stream_of(StreamInfo(config=StreamConfig(name=name), state=StreamState()))

    async def stream_info(
        self, name: str, *, subjects_filter: str = "", deleted_details: bool = False
    ) -> StreamInfo:
        """A stream's info; with `subjects_filter` ("">" for all) the messages of each subject.

        `deleted_details` lists the sequences that are missing inside the stream.
        """
        check_stream_name(name)
        body: dict[str, Any] = {}
        if deleted_details:
            body["deleted_details"] = True
        if subjects_filter:
            body["subjects_filter"] = subjects_filter
        info = StreamInfo.from_wire(await self.api.request(f"STREAM.INFO.{name}", body or None))
        while subjects_filter and len(info.state.subjects) < info.total:
            body["offset"] = len(info.state.subjects)
            page = StreamInfo.from_wire(await self.api.request(f"STREAM.INFO.{name}", body))
            if not page.state.subjects:
                break
            info.state.subjects.update(page.state.subjects)
        return info

    async def stream_subjects(self, name: str, filter: str = ">") -> AsyncIterator[tuple[str, int]]:
        """Each subject in a stream that matches `filter`, with the number of its messages.

        Pages of 100,000 are asked for as they are needed. Raises `StreamNotFoundError`.
        """
        check_stream_name(name)
        check_subject(filter)
        offset = 0
        while True:
            body = {"subjects_filter": filter, "offset": offset}
            info = StreamInfo.from_wire(await self.api.request(f"STREAM.INFO.{name}", body))
            counts = info.state.subjects
            for pair in counts.items():
                yield pair
            offset += len(counts)
            if not counts or offset >= info.total:
                return

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all its messages and consumers. Raises `StreamNotFoundError`."""
        check_stream_name(name)
        await self.api.request(f"STREAM.DELETE.{name}")

    async def purge_stream(
        self, name: str, *, filter: str = "", sequence: int = 0, keep: int = 0
    ) -> int:
        """Remove messages, all of them by default; how many there were. See `Stream.purge`."""
        check_stream_name(name)
        if sequence and keep:
            raise ValueError("purge by `sequence` or by `keep`, not by both")
        body: dict[str, Any] = {}
        if filter:
            body["filter"] = filter
        if sequence:
            body["seq"] = sequence
        if keep:
            body["keep"] = keep
        answer = await self.api.request(f"STREAM.PURGE.{name}", body or None)
        return int(answer.get("purged", 0))

    async def delete_message(self, name: str, sequence: int, *, secure: bool = False) -> None:
        """Remove a message, with `secure` overwriting its bytes.

        Raises `MessageDeleteError` if there is none, or the stream forbids it.
        """
        check_stream_name(name)
        body = {"seq": sequence} if secure else {"seq": sequence, "no_erase": True}
        await self.api.request(f"STREAM.MSG.DELETE.{name}", body)

    async def stream_names(self, subject: str = "") -> AsyncIterator[str]:
        """Names of the streams, or of those with a subject that overlaps `subject`."""
        body = {"subject": subject} if subject else None
        async for name in self.api.pages("STREAM.NAMES", "streams", body):
            yield name

    async def streams(self, subject: str = "") -> AsyncIterator[StreamInfo]:
        """Infos of the streams, or of those with a subject that overlaps `subject`."""
        body = {"subject": subject} if subject else None
        async for raw in self.api.pages("STREAM.LIST", "streams", body):
            yield StreamInfo.from_wire(raw)

    async def stream_name_by_subject(self, subject: str) -> str:
        """The stream that stores `subject`. Raises `StreamNotFoundError`, `InvalidSubjectError`."""
        check_subject(subject)
        async for name in self.stream_names(subject):
            return name
        raise StreamNotFoundError(
            404, 10059, "no stream listens on this subject", f"stream of subject {subject!r}"
        )

    async def stream_by_subject(self, subject: str) -> "Stream":
        """The stream that stores `subject`. Raises `StreamNotFoundError`."""
        return await self.stream(await self.stream_name_by_subject(subject))


def _of_upstreams(config: dict[str, Any]) -> dict[str, Any]:
    """Which fields the mirror or any of the sources has."""
    upstreams = [*filter(None, [config.get("mirror")]), *(config.get("sources") or ())]
    return {name: any(one.get(name) for one in upstreams) for name in _ECHOED_OF_UPSTREAMS}


def _config_of(config: StreamConfig | None, fields: dict[str, Any]) -> StreamConfig:
    if config is None:
        return StreamConfig(**fields)
    return config.replace(**fields) if fields else config
