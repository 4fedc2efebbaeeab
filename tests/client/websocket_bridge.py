"""A WebSocket listener in front of a server that has none, with frames cut as a test likes."""

import asyncio

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.http11 import Request
from websockets.server import ServerProtocol

from slipstream.client.servers import parse_server
from tests.client.listener import Listener


class WebSocketBridge(Listener):
    """Passes what comes in frames on to `url`, and sends what comes back in frames."""

    scheme = "ws"

    def __init__(
        self, url: str, *, fragment: int = 0, compression: bool = False, status: int = 0
    ) -> None:
        super().__init__()
        self.upstream = parse_server(url)
        self.fragment = fragment  # bytes in a frame of a fragmented message; 0: not fragmented
        self.compression = compression
        self.status = status  # an HTTP status to refuse clients with
        self.requests: list[Request] = []
        self.compressed = False  # whether the last client agreed to it
        self.protocols: list[ServerProtocol] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, both ways."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        deflate = ServerPerMessageDeflateFactory(
            server_no_context_takeover=True, client_no_context_takeover=True
        )
        protocol = ServerProtocol(extensions=[deflate] if self.compression else None, max_size=None)
        self.protocols.append(protocol)
        self.writers.append(writer)
        back: asyncio.Task[None] | None = None
        upstream: asyncio.StreamWriter | None = None
        try:
            while data := await reader.read(65536):
                protocol.receive_data(data)
                for event in protocol.events_received():
                    if isinstance(event, Request):
                        if not self._agree(protocol, event):
                            break
                        far, upstream = await asyncio.open_connection(
                            self.upstream.host, self.upstream.port
                        )
                        back = asyncio.create_task(self._back(far, writer, protocol))
                    elif event.opcode < 8 and upstream is not None:
                        upstream.write(event.data)
                self.send(protocol, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (upstream, writer):
                if end is not None:
                    end.close()
            if back is not None:
                back.cancel()
            self.tasks.discard(task)

    def _agree(self, protocol: ServerProtocol, request: Request) -> bool:
        self.requests.append(request)
        if self.status:
            protocol.send_response(protocol.reject(self.status, "go away"))
            return False
        protocol.send_response(protocol.accept(request))
        self.compressed = bool(protocol.extensions)
        return True

    async def _back(
        self, far: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: ServerProtocol
    ) -> None:
        while data := await far.read(65536):
            step = self.fragment or len(data)
            for start in range(0, len(data), step):
                piece, last = data[start : start + step], start + step >= len(data)
                if start == 0:
                    protocol.send_binary(piece, fin=last)
                else:
                    protocol.send_continuation(piece, fin=last)
                if self.fragment:
                    protocol.send_ping(b"between fragments")
            self.send(protocol, writer)
        writer.close()

    def send(self, protocol: ServerProtocol, writer: asyncio.StreamWriter) -> None:
        """Send what the protocol has to send."""
        for data in protocol.data_to_send():
            if data:
                writer.write(data)
            else:
                writer.close()

    def say_goodbye(self, code: int, reason: str) -> None:
        """Close every WebSocket that stands."""
        for protocol, writer in zip(self.protocols, self.writers, strict=True):
            if protocol.state.name == "OPEN":
                protocol.send_close(code, reason)
                self.send(protocol, writer)
