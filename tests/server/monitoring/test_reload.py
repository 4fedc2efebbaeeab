"""The system account can have a server read its configuration again, and hears what came of it."""

import json
from pathlib import Path

import nats

from tests.fix_server_process import StartProcess

CONFIG = """
host: 127.0.0.1
accounts { SYS { users: [{user: s, password: s}] }, A { users: [{user: a, password: a}] } }
system_account: SYS
"""


async def test_a_reload_is_asked_for_and_answered(
    start_server: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(CONFIG)
    server = start_server("-c", str(path))
    client = await nats.connect(f"nats://s:s@127.0.0.1:{server.port}")
    server_id = client._server_info["server_id"]

    async def reload() -> dict[str, object]:
        answer = await client.request(f"$SYS.REQ.SERVER.{server_id}.RELOAD", b"", timeout=10)
        found: dict[str, object] = json.loads(answer.data)
        return found

    path.write_text(CONFIG + "max_payload: 2000\n")
    assert list(await reload()) == ["server"]
    varz = await client.request("$SYS.REQ.SERVER.PING.VARZ", b"", timeout=10)
    assert json.loads(varz.data)["data"]["max_payload"] == 2000
    path.write_text(CONFIG + "server_name: other\n")
    assert (await reload())["error"] == {
        "code": 500,
        "description": "config reload not supported for ServerName: old=, new=other",
    }
    # Accounts that a reload adds have the requests that all have.
    more = CONFIG.replace("A {", "B { users: [{user: b, password: b}] }, A {")
    path.write_text(more + "max_payload: 2000\n")
    assert list(await reload()) == ["server"]
    other = await nats.connect(f"nats://b:b@127.0.0.1:{server.port}")
    info = await other.request("$SYS.REQ.USER.INFO", b"", timeout=10)
    assert json.loads(info.data)["data"]["account"] == "B"
    await other.close()
    await client.close()
