"""Who a client is: passwords plain and hashed, tokens, kinds of connection, nobody at all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import bcrypt
import pytest

from slipstream.server import Server
from slipstream.server.config import load_text
from tests.server.plain_client import PlainClient

VIOLATION = ["-ERR 'Authorization Violation'"]


@contextmanager
def serve(text: str) -> Iterator[Server]:
    """A server with this configuration."""
    options = load_text("port: -1\nhost: 127.0.0.1\n" + text).options
    with Server(config=options) as server:
        yield server


def login(server: Server, **options: object) -> list[str]:
    """What a client hears that says this in CONNECT; nothing if it is let in."""
    client = PlainClient(server.port)
    client.info()
    said = {"verbose": False, "pedantic": False} | options
    client.send(f"CONNECT {json.dumps(said)}\r\n")
    return client.ping()


@pytest.mark.parametrize("prefix", ["2a", "2b", "2x", "2y"])
def test_a_password_may_be_kept_as_any_kind_of_bcrypt_hash(prefix: str) -> None:
    kept = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode().replace("$2b$", f"${prefix}$")
    with serve(f'authorization {{ users: [ {{ user: a, password: "{kept}" }} ] }}') as server:
        assert login(server, user="a", **{"pass": "right"}) == []
        assert login(server, user="a", **{"pass": "wrong"}) == VIOLATION
        assert login(server, user="a", **{"pass": kept}) == VIOLATION
        assert login(server, user="a") == VIOLATION


def test_a_token_may_be_hashed_too() -> None:
    kept = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    with serve(f'authorization {{ token: "{kept}" }}') as server:
        assert login(server, auth_token="right") == []
        assert login(server, auth_token="wrong") == VIOLATION
        assert login(server, **{"pass": "right"}) == VIOLATION


def test_a_broken_hash_lets_nobody_in() -> None:
    with serve('authorization { user: a, password: "$2a$04$broken" }') as server:
        assert login(server, user="a", **{"pass": ""}) == VIOLATION
        assert login(server, user="a", **{"pass": "$2a$04$broken"}) == VIOLATION


def test_a_password_longer_than_bcrypt_looks_at_is_cut_as_others_cut_it() -> None:
    kept = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    with serve(f'authorization {{ users: [ {{ user: a, password: "{kept}" }} ] }}') as server:
        assert login(server, user="a", **{"pass": "x" * 80}) == []


def test_a_user_may_be_for_other_kinds_of_connection_only() -> None:
    text = """authorization { users: [
        { user: web, password: x, allowed_connection_types: ["websocket"] }
        { user: all, password: x, allowed_connection_types: ["standard", "WEBSOCKET"] } ] }"""
    with serve(text) as server:
        assert login(server, user="web", **{"pass": "x"}) == VIOLATION
        assert login(server, user="all", **{"pass": "x"}) == []


def test_who_has_no_password_needs_none() -> None:
    with serve("authorization { users: [ { user: a } ] }") as server:
        assert login(server, user="a") == []
        assert login(server, user="a", **{"pass": "x"}) == VIOLATION


def test_default_permissions_are_for_users_without_their_own() -> None:
    text = """authorization {
        default_permissions: { publish: { deny: "x" } }
        users: [ { user: a, password: x }, { user: b, password: x, permissions: {} } ] }"""
    with serve(text) as server:
        for user, heard in (
            ("a", ["-ERR 'Permissions Violation for Publish to \"x\"'"]),
            ("b", []),
        ):
            client = PlainClient(server.port)
            client.info()
            said = {"verbose": False, "pedantic": False, "user": user, "pass": "x"}
            client.send(f"CONNECT {json.dumps(said)}\r\nPUB x 0\r\n\r\n")
            assert client.ping() == heard


def test_where_only_the_system_account_has_users_others_are_free_in_the_default_one() -> None:
    text = "accounts { $SYS { users: [ { user: admin, password: x } ] } }"
    with serve(text) as server:
        assert login(server) == []
        assert login(server, user="admin", **{"pass": "x"}) == []
        assert login(server, user="admin", **{"pass": "y"}) == VIOLATION
