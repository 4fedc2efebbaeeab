"""`$SYS` requests and events: nats-server's subjects, envelopes and fields."""

import asyncio
import base64
import gzip
import json
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from slipstream import Server
from slipstream.server.config import load_text
from tests.server.monitoring.http_client import fields, shape
from tests.server.monitoring.twins import Twins

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of Go, of clusters, and of durability as we have it.
ONLY_ONE_HAS = ("git_commit", "sync_always", "mappings")


async def ask(url: str, user: str, subject: str, body: str = "", **headers: str) -> Any:
    client = await nats.connect(url, user=user, password=user)
    try:
        subject = subject.replace("<id>", str(client._server_info["server_id"]))
        return await client.request(subject, body.encode(), timeout=5, headers=headers or None)
    finally:
        await client.close()


async def ask_both(twins: Twins, user: str, subject: str, body: str = "") -> tuple[Any, Any]:
    found = [
        json.loads((await ask(url, user, subject, body)).data)
        for url in (twins.their_clients, twins.our_clients)
    ]
    return _common(found[0]), _common(found[1])


def _common(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _common(v) for name, v in value.items() if name not in ONLY_ONE_HAS}
    return [_common(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.SERVER.PING", ""),
        ("$SYS.REQ.SERVER.PING.STATSZ", ""),
        ("$SYS.REQ.SERVER.PING.IDZ", ""),
        ("$SYS.REQ.SERVER.PING.VARZ", ""),
        ("$SYS.REQ.SERVER.<id>.VARZ", '{"server_name":"twin"}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"auth":true,"subscriptions_detail":true,"user":"a"}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"user":null,"CID":null,"limit":null,"server_name":null}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"Auth":true,"SORT":"cid"}'),
        ("$SYS.REQ.SERVER.PING.JSZ", '{"account":null,"Streams":true}'),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"account":null,"js-enabled-only":null}'),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", '{"accounts":null}'),
        ("$SYS.REQ.SERVER.PING.SUBSZ", '{"subscriptions":true,"test":"jobs.one"}'),
        ("$SYS.REQ.SERVER.PING.JSZ", '{"consumer":true,"config":true}'),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", ""),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"account":"A","stream":"NO"}'),
        ("$SYS.REQ.SERVER.PING.ACCOUNTZ", ""),
        ("$SYS.REQ.SERVER.PING.ACCOUNTZ", '{"account":"A"}'),
        ("$SYS.REQ.SERVER.PING.ROUTEZ", ""),
        ("$SYS.REQ.SERVER.PING.LEAFZ", ""),
        ("$SYS.REQ.SERVER.PING.GATEWAYZ", ""),
        ("$SYS.REQ.ACCOUNT.A.CONNZ", ""),
        ("$SYS.REQ.ACCOUNT.A.JSZ", '{"streams":true}'),
        ("$SYS.REQ.ACCOUNT.A.INFO", ""),
        ("$SYS.REQ.ACCOUNT.A.STATZ", ""),
        ("$SYS.REQ.ACCOUNT.A.LEAFZ", ""),
        ("$SYS.REQ.ACCOUNT.A.CONNS", ""),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", ""),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", '{"accounts":["A"]}'),
        ("$SYS.REQ.SERVER.<id>.KICK", '{"cid":99999}'),
        ("$SYS.REQ.USER.INFO", ""),
    ],
)
async def test_the_system_account_gets_the_same_fields(
    twins: Twins, subject: str, body: str
) -> None:
    theirs, ours = await ask_both(twins, "s", subject, body)
    assert fields(shape(ours)) == fields(shape(theirs))


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.ACCOUNT.NO.JSZ", ""),
        ("$SYS.REQ.SERVER.<id>.KICK", '{"cid":99999}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"sort":"zzz"}'),
        ("$SYS.REQ.SERVER.PING.ACCOUNTZ", '{"account":"NO"}'),
    ],
)
async def test_an_error_is_the_same(twins: Twins, subject: str, body: str) -> None:
    theirs, ours = await ask_both(twins, "s", subject, body)
    assert ours["error"] == theirs["error"]


async def test_bad_json_is_error_400(twins: Twins) -> None:
    theirs, ours = await ask_both(twins, "s", "$SYS.REQ.SERVER.PING.CONNZ", '{"limit"')
    assert ours["error"]["code"] == theirs["error"]["code"] == 400


@pytest.mark.parametrize(
    "subject",
    [
        "$SYS.REQ.USER.INFO",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
    ],
)
async def test_every_account_may_ask_about_itself_alone(twins: Twins, subject: str) -> None:
    theirs, ours = await ask_both(twins, "b", subject)
    assert fields(shape(ours)) == fields(shape(theirs))
    assert '"A"' not in json.dumps(ours["data"])


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("s", "$SYS.REQ.SERVER.PING.NOPE"),
        ("s", "$SYS.REQ.SERVER.OTHER.VARZ"),
        ("s", "$SYS.REQ.NOPE"),
        ("b", "$SYS.REQ.SERVER.PING.VARZ"),
        ("b", "$SYS.REQ.ACCOUNT.A.CONNZ"),
    ],
)
async def test_nobody_answers_what_is_not_there_or_not_allowed(
    twins: Twins, user: str, subject: str
) -> None:
    for url in (twins.their_clients, twins.our_clients):
        with pytest.raises(NoRespondersError):
            await ask(url, user, subject)


@pytest.mark.parametrize("body", ["", '{"name":"nope"}', '{"name":"heap"}'])
async def test_a_profile_that_python_does_not_have_is_refused(twins: Twins, body: str) -> None:
    _, ours = await ask_both(twins, "s", "$SYS.REQ.SERVER.PING.PROFILEZ", body)
    assert ours["data"]["profile"] is None
    assert ours["data"]["error"].startswith("Profile ")


async def test_the_profile_of_goroutines_shows_what_the_threads_do(twins: Twins) -> None:
    subject, body = "$SYS.REQ.SERVER.PING.PROFILEZ", '{"name":"goroutine","debug":1}'
    theirs, ours = await ask_both(twins, "s", subject, body)
    assert b"goroutine profile" in base64.b64decode(theirs["data"]["profile"])
    assert b"[slipstream-server]:\n" in base64.b64decode(ours["data"]["profile"])


async def test_subscribers_are_counted_by_subject_and_queue(twins: Twins) -> None:
    clients = []
    for url in (twins.their_clients, twins.our_clients):
        client = await nats.connect(url, user="s", password="s")
        for subject, queue in (("a.b", ""), ("a.*", "q"), ("a.b", "q"), ("a.b", "r"), ("c", "")):
            await client.subscribe(subject, queue)
        clients.append(client)
    for body in ("a.b", "a.b q", "a.* q", "a.>", "a", "c", "x", "", " c ", "a..b"):
        theirs, ours = [
            (await client.request("$SYS.DEBUG.SUBSCRIBERS", body.encode())).data
            for client in clients
        ]
        assert ours == theirs, body
    for client in clients:
        await client.close()


async def test_the_streams_of_an_account_are_deleted_at_once(tmp_path: Path) -> None:
    text = f"jetstream {{ store_dir: {tmp_path} }}\n"
    text += "port: -1, host: 127.0.0.1\naccounts {\n"
    text += "A { jetstream: enabled, users: [{user: a, password: a}] }\n"
    text += "$SYS { users: [{user: s, password: s}] } }\n"
    purge = "$JS.API.ACCOUNT.PURGE"
    with Server(config=load_text(text).options) as server:
        client = await nats.connect(server.url, user="a", password="a")
        js = client.jetstream()
        for name in ("X", "Y"):
            await js.add_stream(name=name, subjects=[name])
        for account in ("NOPE", "A"):
            found = json.loads((await ask(server.url, "s", f"{purge}.{account}")).data)
            assert found == {
                "type": "io.nats.jetstream.api.v1.account_purge_response",
                "initiated": True,
            }
            assert (await js.account_info()).streams == (0 if account == "A" else 2)
        await js.add_stream(name="X", subjects=["X"])
        await client.close()
    gone = text.replace("A {", "B {")  # its account has left the configuration, its files have not
    with Server(config=load_text(gone).options) as server:
        await ask(server.url, "s", f"{purge}.A")
    with Server(config=load_text(text).options) as server:
        client = await nats.connect(server.url, user="a", password="a")
        assert (await client.jetstream().account_info()).streams == 0
        await client.close()


async def test_interest_is_counted(twins: Twins) -> None:
    body = '{"acc":"A","subject":"jobs.*"}'
    theirs, ours = await ask_both(twins, "s", "$SYS.REQ.ACCOUNT.NSUBS", body)
    assert ours == theirs == 1


async def test_an_answer_is_compressed_for_who_can_read_it(twins: Twins) -> None:
    for url in (twins.their_clients, twins.our_clients):
        found = await ask(url, "s", "$SYS.REQ.SERVER.PING.VARZ", **{"Accept-Encoding": "gzip"})
        assert found.headers["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(found.data))["data"]["server_name"] == "twin"


async def test_a_filter_keeps_other_servers_silent(twins: Twins) -> None:
    client = await nats.connect(twins.our_clients, user="s", password="s")
    inbox = await client.subscribe("answers")
    wrong = ('{"server_name":"other"}', '{"tags":["green"]}', '{"domain":"x"}', '{"cluster":"c"}')
    for body in wrong:
        await client.publish("$SYS.REQ.SERVER.PING.VARZ", body.encode(), reply="answers")
    right = b'{"server_name":"twi","tags":["BLUE"],"domain":"hub"}'
    await client.publish("$SYS.REQ.SERVER.PING.VARZ", right, reply="answers")
    assert json.loads((await inbox.next_msg(5)).data)["data"]["server_name"] == "twin"
    assert inbox.pending_msgs == 0
    await client.close()


CONFIG = """
port: -1, host: 127.0.0.1, server_name: alone
accounts {
  A { users: [{user: a, password: a, permissions {
        publish: {allow: ["x", "$SYS.REQ.USER.INFO"], deny: "y"}, subscribe: ["_INBOX.>", "q w"]
        allow_responses: {max: 3, expires: "1m"} }}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""


async def test_user_info_shows_what_a_user_may_do() -> None:
    async with Server(config=load_text(CONFIG).options) as server:
        found = json.loads((await ask(server.url, "a", "$SYS.REQ.USER.INFO")).data)["data"]
    assert found == {
        "user": "a",
        "account": "A",
        "account_name": "A",
        "permissions": {
            "publish": {"allow": ["x", "$SYS.REQ.USER.INFO"], "deny": ["y"]},
            "subscribe": {"allow": ["_INBOX.>", "q w"]},
            "responses": {"max": 3, "ttl": 60_000_000_000},
        },
    }


async def refused(url: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    await reader.readline()
    writer.write(b'CONNECT {"user":"a","pass":"wrong","lang":"raw"}\r\n')
    assert b"Authorization Violation" in await reader.readline()
    writer.close()


CONNS = {"$SYS.ACCOUNT.A.SERVER.CONNS", "$SYS.SERVER.ACCOUNT.A.CONNS"}
GUEST = {"$SYS.ACCOUNT.A.CONNECT", "$SYS.ACCOUNT.A.DISCONNECT"}
REFUSED = {"$SYS.SERVER.<id>.CLIENT.AUTH.ERR", "$SYS.ACCOUNT.$G.DISCONNECT"}


async def events_of(url: str) -> dict[str, dict[str, Any]]:
    """What the system account hears of a client that comes, publishes, goes; and of a refused."""
    system: Client = await nats.connect(url, user="s", password="s")
    server_id = str(system._server_info["server_id"])
    found: dict[str, dict[str, Any]] = {}
    heard_all = asyncio.Event()

    async def heard(message: Any) -> None:
        event = json.loads(message.data)
        client = event.get("client", {})
        if not client or client.get("name") == "guest" or client.get("lang") == "raw":
            found.setdefault(message.subject.replace(server_id, "<id>"), event)
        if found.keys() >= CONNS | GUEST | REFUSED:
            heard_all.set()

    for subject in ("ACCOUNT.>", "SERVER.ACCOUNT.>", "SERVER.*.CLIENT.AUTH.ERR"):
        await system.subscribe(f"$SYS.{subject}", cb=heard)
    await system.flush()
    client = await nats.connect(url, user="a", password="a", name="guest")
    await client.publish("x", b"1")
    await client.flush()
    await client.close()
    await refused(url)
    await asyncio.wait_for(heard_all.wait(), 10)
    await system.close()
    return found


async def test_clients_that_come_and_go_are_announced(twins: Twins) -> None:
    theirs = await events_of(twins.their_clients)
    ours = await events_of(twins.our_clients)
    for subject in CONNS | GUEST | REFUSED:
        mine, other = _common(ours[subject]), _common(theirs[subject])
        if "rtt" not in mine.get("client", {}):
            # A refused client was never asked for an answer, so there is nothing to measure.
            other.get("client", {}).pop("rtt", None)
        assert fields(shape(mine)) == fields(shape(other)), subject
    gone = ours["$SYS.ACCOUNT.A.DISCONNECT"]
    assert gone["reason"] == "Client Closed"
    assert (gone["sent"], gone["client"]["name"]) == ({"msgs": 1, "bytes": 1}, "guest")


async def test_statistics_come_by_themselves_while_somebody_listens() -> None:
    async with Server(config=load_text(CONFIG).options) as server:
        assert server.runtime is not None
        engine = server.runtime.engine
        client = await nats.connect(server.url, user="s", password="s")
        inbox = await client.subscribe("$SYS.SERVER.*.STATSZ")
        found = json.loads((await inbox.next_msg(5)).data)
        assert (found["server"]["name"], found["statsz"]["connections"]) == ("alone", 1)
        await inbox.unsubscribe()
        await client.flush()
        assert not engine.system_account.has_interest(
            f"$SYS.SERVER.{engine.server_id}.STATSZ".encode()
        )
        await client.close()


async def test_a_client_can_be_kicked_or_asked_to_move() -> None:
    async with Server(config=load_text(CONFIG).options) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        cid = json.loads((await reader.readline())[5:])["client_id"]
        connect = b'CONNECT {"user":"a","pass":"a","protocol":1,"verbose":false}\r\nPING\r\n'
        writer.write(connect)
        assert await reader.readline() == b"PONG\r\n"
        await reader.readline()  # INFO after the first PING
        body = json.dumps({"cid": cid})
        for order in ("LDM", "KICK"):
            answer = await ask(server.url, "s", f"$SYS.REQ.SERVER.<id>.{order}", body)
            assert list(json.loads(answer.data)) == ["server"]
        while (line := await reader.readline()) == b"PING\r\n":
            pass  # the server's own, two seconds after the beginning
        assert json.loads(line[5:])["ldm"] is True
        assert (await reader.read()).replace(b"PING\r\n", b"") == b""
        writer.close()


async def test_without_a_system_account_nobody_answers() -> None:
    options = load_text("port: -1\nhost: 127.0.0.1\nno_system_account: true").options
    async with Server(config=options) as server:
        client = await nats.connect(server.url)
        with pytest.raises(NoRespondersError):
            await client.request("$SYS.REQ.USER.INFO", b"", timeout=5)
        await client.close()
