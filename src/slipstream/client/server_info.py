"""What a server says of itself: INFO (spec protocol.md section 3)."""

import msgspec

from slipstream.errors import ProtocolError


class ServerInfo(msgspec.Struct, kw_only=True):
    """The server's INFO; absent fields have the meaning of absence."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    git_commit: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = 1024 * 1024
    jetstream: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = []
    ldm: bool = False  # lame duck: the server is about to stop
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    xkey: str = ""

    @property
    def version_tuple(self) -> tuple[int, int, int]:
        """`version` for comparisons; (0, 0, 0) if it is not of the form 1.2.3."""
        numbers = self.version.split("-")[0].split("+")[0].split(".")
        if len(numbers) != 3 or not all(n.isdigit() for n in numbers):
            return (0, 0, 0)
        return (int(numbers[0]), int(numbers[1]), int(numbers[2]))


_decode = msgspec.json.Decoder(ServerInfo).decode


def parse_info(text: bytes) -> ServerInfo:
    """Read INFO's JSON; raises `ProtocolError` if it is not one."""
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a server's INFO can not be read: {error}") from error
