"""TLS, passwords, tokens and keys between linked servers."""

import ipaddress
from pathlib import Path

import pytest
from cryptography import x509

import slipstream
from slipstream.errors import ConfigError
from slipstream.server.config import load_text
from slipstream.wire.nkeys import KeyPair
from tests.client.jwts import new_seed
from tests.fix_certificates import Authority
from tests.leaf.servers import NATS, PAIRS, SLIPSTREAM, linked, make_pair, running, until
from tests.leaf.test_core import carries, knows

LOOPBACK = ipaddress.ip_address("127.0.0.1")
each_pair = pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))


@each_pair
@pytest.mark.parametrize("first", [False, True])
async def test_tls_with_certificates_of_both(
    kinds: tuple[str, str], first: bool, tmp_path: Path, authority: Authority
) -> None:
    cert, key = authority.issue("127.0.0.1", x509.IPAddress(LOOPBACK))
    shown, shown_key = authority.issue("edge")
    more = "handshake_first: true" if first else ""
    hub = f"""tls {{ cert_file: "{cert}"
        key_file: "{key}"
        ca_file: "{authority.ca_file}"
        verify: true
        {more} }}"""
    remote = f"""tls {{ ca_file: "{authority.ca_file}"
        cert_file: "{shown}"
        key_file: "{shown_key}"
        {more} }}"""
    async with linked(kinds, tmp_path, hub=hub, remote=remote) as pair:
        await carries(pair, [b"y" * 200_000])


@each_pair
async def test_a_hub_whose_certificate_nobody_knows_is_not_trusted(
    kinds: tuple[str, str], tmp_path: Path, authority: Authority
) -> None:
    cert, key = authority.issue("127.0.0.1", x509.IPAddress(LOOPBACK))
    hub = f'tls {{ cert_file: "{cert}"\nkey_file: "{key}" }}'
    pair = make_pair(kinds, tmp_path, hub=hub)
    async with running(pair.hub, pair.leaf):

        async def tried() -> bool:
            found = await pair.leaf.monitor("/varz")
            return bool(found["total_connections"] >= 1) or pair.leaf.kind == NATS

        await until(tried)
        assert not await pair.hub.links()
    insecure = "tls { insecure: true }"
    async with linked(kinds, tmp_path, hub=hub, remote=insecure) as pair:
        await carries(pair, [b"y" * 200_000])


@each_pair
async def test_users_of_the_port_belong_to_accounts(kinds: tuple[str, str], tmp_path: Path) -> None:
    users = "authorization { users: [ { user: a, password: p, account: A } ] }"
    accounts = (
        "accounts { A { users: [ { user: ana, password: x } ], jetstream: enabled }, "
        "B { users: [ { user: bob, password: x } ] } }"
    )
    async with (
        linked(kinds, tmp_path, hub=users, hub_more=accounts, user="a:p") as pair,
        await slipstream.connect(pair.hub.url, user="ana", password="x") as ana,
        await slipstream.connect(pair.hub.url, user="bob", password="x") as bob,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        hers, his = await ana.subscribe("s"), await bob.subscribe("s")
        await ana.flush()
        await bob.flush()
        await knows(pair.leaf, "s")
        await leaf.publish("s", b"")
        await hers.next(timeout=10)
        assert not his.pending


@pytest.mark.parametrize("name", ["seed", "file"])
async def test_a_key_proves_who_the_leaf_is(name: str, tmp_path: Path) -> None:
    seed = new_seed("U")
    path = tmp_path / "edge.nk"
    path.write_text(seed + "\n")
    given = seed if name == "seed" else str(path)
    users = f"accounts {{ A {{ users: [ {{ nkey: {KeyPair(seed).public} }} ] }} }}"
    kinds = (NATS, SLIPSTREAM)
    async with linked(kinds, tmp_path, hub_more=users, remote=f'nkey: "{given}"') as pair:
        assert (await pair.hub.links())[0]["account"] == "A"


@pytest.mark.parametrize(
    ("block", "what"),
    [
        ('remotes: [ { url: "ws://a:1" } ]', "WebSocket"),
        ('remotes: [ { url: "http://a:1" } ]', "scheme"),
        ('remotes: [ { url: "nats://:x" } ]', "a url is one such as"),
        ('remotes: [ { url: "nats://a", deny_imports: "a..b" } ]', "not a valid subject"),
        (
            'remotes: [ { url: "nats://a", compression: zip } ]',
            "compression is one of off",
        ),
        ('compression { rtt_thresholds: ["20ms", "10ms"] }', "longer than the one before"),
        ('remotes: [ { url: "nats://a", account: NONE } ]', 'no account "NONE"'),
        ("remotes: [ { } ]", "needs a url"),
        ("port: 70000", "not a port"),
        ("port: 4222", "the clients' port"),
        ("port: -1, tls { }", "cert_file is missing"),
    ],
)
def test_what_is_wrong_in_the_configuration_is_said(block: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        load_text(f"leafnodes {{ {block} }}").options.validate()


@pytest.mark.parametrize("scheme", ["nats-leaf", "leaf", "nats", "tls"])
def test_a_hub_is_named_in_each_way_that_is_in_use(scheme: str) -> None:
    text = f'leafnodes {{ remotes: [ {{ url: "{scheme}://hub:7422" }} ] }}'
    (remote,) = load_text(text).options.leafnodes.remotes
    assert remote.urls == [f"{scheme}://hub:7422"]


async def test_a_reload_holds_links_to_the_new_rules(tmp_path: Path) -> None:
    accounts = 'accounts {{ A {{ users: [ {{ user: a, password: "{}" }} ] }} }}'
    more = accounts.format("old")
    async with linked((SLIPSTREAM, SLIPSTREAM), tmp_path, hub_more=more, user="a:old") as pair:
        text = pair.hub.configuration()
        path = str(tmp_path / "HUB.conf")
        for password, is_let_in in (("new", False), ("old", True)):
            changed = load_text(text.replace('"old"', f'"{password}"'), path).options
            pair.hub.reload(changed)

            async def is_right(wanted: bool = is_let_in) -> bool:
                return bool(await pair.hub.links()) is wanted

            await until(is_right)


async def test_rights_that_cannot_be_kept_over_a_link_are_none(tmp_path: Path) -> None:
    rights = (
        "accounts { A { users: [ { user: a, password: p, permissions: "
        '{ allow_responses: true, subscribe: "only crew" } }, { user: b, password: p } ] } }'
        "\nno_auth_user: b"
    )
    async with (
        linked((SLIPSTREAM, SLIPSTREAM), tmp_path, hub_more=rights, user="a:p") as pair,
        await slipstream.connect(pair.hub.url) as hub,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        heard = [await client.subscribe("only") for client in (hub, leaf)]
        for client in (hub, leaf):
            await client.flush()
            await client.publish("only", b"near")
            await client.flush()
        for subscription in heard:
            assert (await subscription.next(timeout=10)).data == b"near"
        found = [await node.links() for node in (pair.hub, pair.leaf)]
        assert [link[0]["in_msgs"] + link[0]["out_msgs"] for link in found] == [0, 0]
