"""`slipstream auth` and `jwt` without a server: the store, keys, backups, and what is refused."""

import base64
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import nacl.public
import nacl.signing
import nkeys
import pytest

from slipstream.cli.auth.entities import Store
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair, new_seed, read_public
from tests.cli.conftest import Cli
from tests.client.jwts import make_jwt

SECRET = re.compile(r"\bS[OAUNCX][A-Z2-7]{56}\b")
ACCOUNT_LIMITS = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory with operator acme, the account ORDERS and the user alice."""
    cli = Cli("", tmp_path_factory.mktemp("acme"))
    cli("auth", "operator", "add", "acme")
    cli("auth", "account", "add", "ORDERS", "--defaults")
    cli("auth", "user", "add", "alice", "ORDERS", "--defaults")
    return cli.home


@pytest.fixture
def acme(made: Path, offline: Cli) -> Cli:
    """The command line with a copy of that home."""
    shutil.copytree(made, offline.home, dirs_exist_ok=True)
    return offline


def store(cli: Cli) -> Path:
    """The directory of the store and the keys."""
    return cli.home / "data" / "nats" / "nsc"


def told(cli: Cli, *words: str) -> Any:
    """What a command prints as JSON."""
    return json.loads(cli(*words, "--json").out)


def claims_in(path: Path) -> dict[str, Any]:
    """What the JWT in a file says, read without our code; its signature is checked by nkeys."""
    head, body, signature = path.read_text().split(".")
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    key = nkeys.KeyPair(keys=_verifying(found["iss"]))
    key.verify(f"{head}.{body}".encode(), base64.urlsafe_b64decode(signature + "=="))
    return found


def _verifying(public: str) -> Any:
    class Keys:
        verify_key = nacl.signing.VerifyKey(read_public(public)[1])

    return Keys()


# -- the store ---------------------------------------------------------------------------------


def test_jwts_keys_and_credentials_lie_where_nsc_has_them(acme: Cli) -> None:
    operator = claims_in(store(acme) / "stores/acme/acme.jwt")
    account = claims_in(store(acme) / "stores/acme/accounts/ORDERS/ORDERS.jwt")
    user = claims_in(store(acme) / "stores/acme/accounts/ORDERS/users/alice.jwt")
    system = claims_in(store(acme) / "stores/acme/accounts/SYSTEM/SYSTEM.jwt")
    marker = json.loads((store(acme) / "stores/acme/.nsc").read_text())
    assert marker == {"managed": False, "name": "acme", "kind": "operator", "version": "1"}
    assert operator["iss"] == operator["sub"]
    assert operator["nats"]["system_account"] == system["sub"]
    assert [account["iss"]] == operator["nats"]["signing_keys"]
    assert user["iss"] == account["sub"]
    assert [one["nats"]["type"] for one in (operator, account, user)] == [
        "operator",
        "account",
        "user",
    ]
    for public in (operator["sub"], account["iss"], account["sub"], user["sub"], system["sub"]):
        path = store(acme) / "keys/keys" / public[0] / public[1:3] / f"{public}.nk"
        assert nkeys.from_seed(path.read_bytes()).public_key.decode() == public
    kept = (store(acme) / "keys/creds/acme/ORDERS/alice.creds").read_text()
    assert (store(acme) / "stores/acme/accounts/ORDERS/users/alice.jwt").read_text() in kept


def test_nobody_else_may_read_any_of_it(acme: Cli) -> None:
    written = [acme.home / name for name in ("alice.creds", "acme.backup", "acme.conf", "a.nk")]
    written[0].write_text("of somebody else")
    written[0].chmod(0o644)
    acme("auth", "user", "credential", str(written[0]), "alice", "--force")
    acme("auth", "operator", "backup", "acme", str(written[1]))
    acme("auth", "operator", "generate", "--output", str(written[2]))
    acme("auth", "nkey", "gen", "user", "--output", str(written[3]))
    for path in [*written, *(acme.home / "data").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_seeds_are_shown_only_by_what_is_asked_for_them(acme: Cli) -> None:
    lines = [
        ("auth", "operator", "info"),
        ("auth", "operator", "keys", "add"),
        ("auth", "operator", "generate"),
        ("auth", "account", "add", "MORE", "--defaults"),
        ("auth", "account", "keys", "add", "MORE", "role"),
        ("auth", "account", "info", "ORDERS"),
        ("auth", "user", "add", "bob", "ORDERS", "--defaults"),
        ("auth", "user", "info", "alice"),
        ("auth", "user", "credential", "alice.creds", "alice"),
        ("jwt", "decode", "alice.creds"),
        ("auth", "operator", "backup", "acme", "acme.backup"),
    ]
    for line in lines:
        done = acme(*line)
        assert not SECRET.search(done.out + done.err), line
    assert SECRET.search((acme.home / "alice.creds").read_text())


def test_a_jwt_keeps_what_this_version_does_not_know(acme: Cli) -> None:
    path = store(acme) / "stores/acme/accounts/ORDERS/ORDERS.jwt"
    before = claims_in(path)
    seed = (store(acme) / "keys/keys").glob(f"O/*/{before['iss']}.nk")
    nats = before["nats"] | {
        "from_the_future": {"a": 1},
        "exports": [{"name": "e", "subject": "e", "type": "stream", "newer": True}],
        "limits": before["nats"]["limits"] | {"newer": 7},
    }
    key = KeyPair(next(seed).read_text())
    path.write_text(make_jwt(key, before["sub"], "ORDERS", nats))
    acme("auth", "account", "edit", "ORDERS", "--connections", "5")
    after = claims_in(path)["nats"]
    assert after["limits"] == nats["limits"] | {"conn": 5}
    assert after["from_the_future"] == {"a": 1}
    assert after["exports"] == nats["exports"]


def test_the_keys_of_what_is_removed_are_removed(acme: Cli) -> None:
    acme("auth", "account", "add", "MORE", "--defaults")
    acme("auth", "account", "keys", "add", "MORE", "role")
    acme("auth", "user", "add", "bob", "MORE", "--defaults")
    acme("auth", "account", "rm", "MORE", "--force")
    left = {path.stem[0] for path in (store(acme) / "keys").rglob("*.nk")}
    assert left == {"O", "A", "U"}
    assert len(list((store(acme) / "keys/keys/A").rglob("*.nk"))) == 2
    assert [path.name for path in (store(acme) / "keys").rglob("*.creds")] == ["alice.creds"]
    assert told(acme, "auth", "account", "ls", "--names") == ["ORDERS", "SYSTEM"]
    acme("auth", "operator", "rm", "acme", "--force")
    assert not list(store(acme).rglob("*.nk"))
    assert not list(store(acme).rglob("*.jwt"))
    assert not list(store(acme).rglob("*.creds"))


def test_nothing_is_kept_of_what_is_refused(acme: Cli) -> None:
    before = sorted(store(acme).rglob("*"))
    acme("auth", "user", "add", "bob", "ORDERS", "--pub-allow", "a..b", "--defaults", status=2)
    acme("auth", "user", "add", "bob", "ORDERS", "--key", "nobody", "--defaults", status=1)
    acme("auth", "account", "add", "MORE", "--no-jetstream", "--js-disk", "1G", status=2)
    acme("auth", "operator", "add", "b", "--service", "http://a", status=2)
    acme("auth", "account", "keys", "add", "ORDERS", "r", "--connection", "fax", status=2)
    acme("auth", "account", "keys", "add", "ORDERS", "r", "--locale", "Nowhere", status=2)
    assert sorted(store(acme).rglob("*")) == before


def test_a_backup_that_is_damaged_restores_nothing(acme: Cli) -> None:
    file = acme.home / "acme.backup"
    acme("auth", "operator", "backup", "acme", str(file))
    acme("auth", "operator", "rm", "acme", "--force")
    before = sorted(store(acme).rglob("*"))
    whole = file.read_text()
    saved = json.loads(whole)
    saved["accounts"][0]["users"][0]["token"] = saved["accounts"][0]["token"]
    wrong_seed = json.loads(whole)
    wrong_seed["key"]["key"] = wrong_seed["key"]["key"][:-1]
    climbing = json.loads(whole)
    climbing["accounts"][0]["name"] = "../../.."
    damaged = [whole[:100], "{}", "[]", "", json.dumps(saved), json.dumps(wrong_seed)]
    for text in [*damaged, json.dumps(climbing)]:
        file.write_text(text)
        refused = acme("auth", "operator", "restore", "acme", str(file), status=1)
        assert "Traceback" not in refused.err
        assert sorted(store(acme).rglob("*")) == before
    file.write_text(whole)
    assert "not of other" in acme("auth", "operator", "restore", "other", str(file), status=1).err
    acme("auth", "operator", "restore", "acme", str(file))
    assert "already" in acme("auth", "operator", "restore", "acme", str(file), status=1).err


def test_an_operator_is_taken_over_with_the_keys_that_are_given(acme: Cli) -> None:
    jwt = acme.home / "acme.jwt"
    jwt.write_bytes((store(acme) / "stores/acme/acme.jwt").read_bytes())
    claims = claims_in(jwt)
    keys = []
    for public in (claims["sub"], *claims["nats"]["signing_keys"]):
        keys.append(acme.home / f"{public}.nk")
        (found,) = (store(acme) / "keys/keys/O").rglob(f"{public}.nk")
        keys[-1].write_bytes(found.read_bytes())
    line = ("auth", "operator", "import", str(jwt))
    assert "already" in acme(*line, status=1).err
    acme("auth", "operator", "rm", "acme", "--force")
    other = acme.home / "other.nk"
    other.write_text(new_seed("O"))
    assert "none of operator acme" in acme(*line, str(other), status=1).err
    assert not list(store(acme).rglob("*.jwt"))
    imported = acme(*line, str(keys[1]))
    assert "cannot be changed here" in imported.err
    acme("auth", "account", "add", "MORE", "--defaults")
    assert "key store" in acme("auth", "operator", "edit", "--tags", "a", status=1).err
    acme("auth", "operator", "rm", "acme", "--force")
    assert acme(*line, *map(str, keys)).err == ""
    acme("auth", "operator", "edit", "--tags", "a")
    assert (store(acme) / "stores/acme/.nsc").exists()


# -- which is meant ----------------------------------------------------------------------------


def test_the_operator_is_selected_in_the_file_of_the_nats_tool(acme: Cli) -> None:
    acme("auth", "operator", "add", "other")
    refused = acme("auth", "account", "ls", status=2).err
    assert "acme, other" in refused
    assert "auth operator select" in refused
    acme("auth", "operator", "select", "acme")
    assert json.loads((acme.home / "nats/cli/config.json").read_text()) == {
        "select_operator": "acme"
    }
    assert told(acme, "auth", "account", "ls", "--names") == ["ORDERS", "SYSTEM"]
    assert told(acme, "auth", "account", "ls", "other", "--names") == ["SYSTEM"]
    assert "acme*" in acme("auth", "operator", "ls").out
    (acme.home / "nats/cli/config.json").write_text("{")
    assert "is damaged" in acme("auth", "account", "ls", status=1).err


def test_a_user_is_found_without_its_account_and_by_its_key(acme: Cli) -> None:
    alice = told(acme, "auth", "user", "info", "alice")
    assert told(acme, "auth", "user", "info", alice["sub"], "ORDERS") == alice
    acme("auth", "user", "add", "alice", "SYSTEM", "--defaults")
    assert "ORDERS, SYSTEM" in acme("auth", "user", "info", "alice", status=2).err
    assert "USER is missing" in acme("auth", "user", "info", "", "ORDERS", status=2).err
    assert "has no user nobody" in acme("auth", "user", "info", "nobody", "ORDERS", status=1).err
    assert "lists them" in acme("auth", "user", "info", "nobody", status=1).err


@pytest.mark.parametrize(
    "line",
    ["auth o i acme", "auth op view acme", "auth a ls", "auth acct list", "auth act i ORDERS",
     "auth a sk ls ORDERS", "auth a exp ls ORDERS", "auth a imports list ORDERS",
     "auth u view alice", "auth usr ls ORDERS", "auth users ls ORDERS", "auth o sk list",
     "auth nk gen user", "auth operator gen"],
)  # fmt: skip
def test_the_other_names_of_the_nats_tool_are_known(acme: Cli, line: str) -> None:
    assert acme(*line.split()).out


def test_every_group_explains_itself(offline: Cli) -> None:
    for words in ("", "operator", "operator keys", "account", "account keys", "account exports",
                  "account imports", "account mappings", "user", "nkey", "jwt"):  # fmt: skip
        assert "Commands" in offline("auth", *words.split(), "--help").out
    assert "--pub-allow" in offline("auth", "user", "add", "--help").out
    assert "no such command" in offline("auth", "user", "nope", status=2).err.lower()
    assert "credential" in offline("__complete", "auth", "user").out.split()


def test_a_terminal_is_asked_what_the_line_does_not_say(acme: Cli) -> None:
    shown = acme.on_terminal("auth", "account", "info", answers="1\n")
    assert "Select an Account" in shown.out
    assert "Account ORDERS" in shown.out
    declined = acme.on_terminal("auth", "user", "rm", "alice", "ORDERS", answers="n\n")
    assert declined.status == 130
    assert "Really remove user alice" in declined.out
    made = acme.on_terminal("auth", "account", "add", "ASKED", "--jetstream",
                            answers="5\n-1\n2GB\n1GB\n")  # fmt: skip
    assert made.status == 0, made.out
    limits = told(acme, "auth", "account", "info", "ASKED")["nats"]["limits"]
    assert (limits["conn"], limits["subs"], limits["disk_storage"]) == (5, -1, 2 * 1024**3)


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "a\\b", "", "a\nb"])
def test_a_name_that_is_no_directory_is_refused(acme: Cli, name: str) -> None:
    for words in (
        ("operator", "add", name),
        ("account", "add", name, "--defaults"),
        ("user", "add", name, "ORDERS", "--defaults"),
    ):
        done = acme.run("auth", *words)
        assert done.status in (1, 2)
        assert "Traceback" not in done.err
    assert not list(acme.home.glob("*.jwt"))


def test_what_is_there_is_not_made_again(acme: Cli) -> None:
    for words in (("operator", "add", "acme"), ("account", "add", "ORDERS"),
                  ("user", "add", "alice", "ORDERS")):  # fmt: skip
        refused = acme("auth", *words, status=1).err
        assert "already" in refused
        assert "edit" in refused
    acme("auth", "account", "keys", "add", "ORDERS", "role")
    assert (
        "role role already"
        in acme("auth", "account", "keys", "add", "ORDERS", "role", status=1).err
    )
    assert "system account" in acme("auth", "account", "rm", "SYSTEM", "--force", status=1).err


def test_a_file_is_not_overwritten_unasked(acme: Cli) -> None:
    file = acme.home / "mine"
    file.write_text("mine")
    for words in (("user", "credential", str(file), "alice"),
                  ("operator", "backup", "acme", str(file)),
                  ("operator", "generate", "--output", str(file)),
                  ("nkey", "gen", "user", "--output", str(file))):  # fmt: skip
        assert "--force" in acme("auth", *words, status=2).err
        assert file.read_text() == "mine"


# -- exports and imports -----------------------------------------------------------------------


def test_exports_and_imports_are_listed_changed_and_taken_back(acme: Cli) -> None:
    exports, imports = ("auth", "account", "exports"), ("auth", "account", "imports")
    acme("auth", "account", "add", "OTHER", "--defaults")
    acme(*exports, "add", "All", "orders.*.>", "ORDERS", "--token-position", "2")
    acme(*exports, "edit", "orders.*.>", "ORDERS", "--description", "d", "--advertise")
    found = told(acme, *exports, "ls", "ORDERS")[0]
    assert (found["description"], found["advertise"], found["account_token_position"]) == (
        "d", True, 2)  # fmt: skip
    assert found == told(acme, *exports, "info", "orders.*.>", "ORDERS")
    acme(*imports, "add", "All", "orders.*.>", "OTHER", "--source", "ORDERS")
    acme(*imports, "edit", "orders.*.>", "OTHER", "--local", "o.$1.>", "--traceable")
    found = told(acme, *imports, "info", "o.$1.>", "OTHER")
    assert (found["local_subject"], found["allow_trace"]) == ("o.$1.>", True)
    assert "ORDERS" in acme(*imports, "ls", "OTHER").out
    elsewhere = KeyPair(new_seed("A")).public
    acme(*imports, "add", "Far", "far", "OTHER", "--source", elsewhere)
    assert {one["account"] for one in told(acme, *imports, "ls", "OTHER")} > {elsewhere}
    acme(*imports, "rm", "o.$1.>", "OTHER", "--force")
    acme(*exports, "rm", "orders.*.>", "ORDERS", "--force")
    assert told(acme, *exports, "ls", "ORDERS") == []
    assert len(told(acme, *imports, "ls", "OTHER")) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("exports add A orders.new ORDERS", "exports orders.> already"),
        ("exports add A > ORDERS", "exports orders.> already"),
        ("exports add A a..b ORDERS", "no subject"),
        ("exports add A a.b ORDERS --token-position 2", "is no *"),
        ("exports info nope ORDERS", "does not export nope"),
        ("imports add A a SYSTEM", "--source"),
        ("imports add A a ORDERS --source ORDERS", "of itself"),
        ("imports add A a.* SYSTEM --source ORDERS --local b", "each *"),
        ("imports add A a.* SYSTEM --source ORDERS --local b.$2", "each *"),
        ("imports add A a.> SYSTEM --source ORDERS --local b", "ends with >"),
        ("imports add A a SYSTEM --source ORDERS --share", "for services"),
        ("imports add A a SYSTEM --source ORDERS --service --traceable", "for streams"),
        ("imports add A a SYSTEM --source NOBODY", "no account NOBODY"),
        ("imports rm nope SYSTEM --force", "imports nothing as nope"),
    ],
)
def test_an_exchange_that_can_not_be_is_refused(acme: Cli, line: str, said: str) -> None:
    acme("auth", "account", "exports", "add", "All", "orders.>", "ORDERS")
    done = acme.run("auth", "account", *line.split())
    assert done.status in (1, 2)
    assert said in done.err


def test_subjects_are_mapped_in_parts(acme: Cli) -> None:
    mappings = ("auth", "account", "mappings")
    acme(*mappings, "add", "ORDERS", "a", "a.v1", "90")
    acme("auth", "a", "map", "add", "ORDERS", "a", "a.v2", "10")
    acme(*mappings, "add", "ORDERS", "a", "a.v3", "100", "east")
    acme(*mappings, "add", "ORDERS", "b.*", "c.{{wildcard(1)}}")
    found = told(acme, *mappings, "info", "ORDERS", "a")["a"]
    assert [(one["subject"], one["weight"], one["cluster"]) for one in found] == [
        ("a.v1", 90, ""),
        ("a.v2", 10, ""),
        ("a.v3", 100, "east"),
    ]
    full = acme(*mappings, "add", "ORDERS", "a", "a.v4", "1", status=2).err
    assert "101 per cent" in full
    assert "already" in acme(*mappings, "add", "ORDERS", "a", "a.v1", status=1).err
    assert "no subject" in acme(*mappings, "add", "ORDERS", "a..b", "c", status=2).err
    acme(*mappings, "rm", "ORDERS", "a", "--force")
    assert list(told(acme, *mappings, "ls", "ORDERS")) == ["b.*"]
    assert "does not map a" in acme(*mappings, "rm", "ORDERS", "a", "--force", status=1).err


def test_an_account_exports_no_more_than_it_may(acme: Cli) -> None:
    acme("auth", "account", "edit", "ORDERS", "--exports", "0", "--imports", "0")
    exports = acme("auth", "account", "exports", "add", "A", "a", "ORDERS", status=1).err
    assert "--exports 1" in exports
    imports = ("auth", "account", "imports", "add", "A", "a", "ORDERS", "--source", "SYSTEM")
    assert "--imports 1" in acme(*imports, status=1).err


# -- NKeys -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "letter"),
    [("operator", "O"), ("account", "A"), ("user", "U"), ("server", "N"), ("cluster", "C"),
     ("curve", "X"), ("x25519", "X")],
)  # fmt: skip
def test_keys_of_every_kind_are_made(offline: Cli, kind: str, letter: str) -> None:
    seed, public = offline("auth", "nkey", "gen", kind, "--public").out.split()
    assert KeyPair(seed).public == public
    assert public.startswith(letter)
    if letter != "X":
        assert nkeys.from_seed(seed.encode()).public_key.decode() == public
    (offline.home / "key").write_text(f"# mine\n{seed}\n")
    assert offline("auth", "nkey", "show", "key").out.strip() == public


def test_what_was_signed_is_checked(offline: Cli) -> None:
    offline("auth", "nkey", "gen", "user", "--output", "u.nk")
    (offline.home / "u.pub").write_text(offline("auth", "nkey", "show", "u.nk").out)
    (offline.home / "data.txt").write_bytes(b"\x00data")
    signature = offline("auth", "nkey", "sign", "data.txt", "u.nk").out
    (offline.home / "sig").write_text(signature)
    theirs = nkeys.from_seed((offline.home / "u.nk").read_bytes().strip()).sign(b"\x00data")
    assert signature.strip() == base64.urlsafe_b64encode(theirs).rstrip(b"=").decode()
    for key in ("u.nk", "u.pub"):
        assert offline("auth", "nkey", "verify", "data.txt", "sig", key).out == "Verified OK\n"
        assert offline("auth", "nkey", "check", "data.txt", "sig", key).out == "Verified OK\n"
    (offline.home / "data.txt").write_bytes(b"\x01data")
    assert "is not that of" in offline("auth", "nkey", "verify", "data.txt", "sig", "u.nk",
                                       status=1).err  # fmt: skip
    assert "public key only" in offline("auth", "nkey", "sign", "data.txt", "u.pub", status=1).err
    (offline.home / "sig").write_text("%%%")
    assert "base64" in offline("auth", "nkey", "verify", "data.txt", "sig", "u.nk", status=1).err


def test_a_key_is_made_of_the_entropy_that_is_given(offline: Cli) -> None:
    (offline.home / "random").write_bytes(bytes(range(40)))
    made = offline("auth", "nkey", "gen", "user", "--entropy", "random").out.strip()
    assert made == new_seed("U", bytes(range(32)))
    (offline.home / "random").write_bytes(b"short")
    assert "5 bytes" in offline("auth", "nkey", "gen", "user", "--entropy", "random", status=1).err


def test_what_was_sealed_is_read_by_who_it_is_for(offline: Cli) -> None:
    mine, theirs, other = (KeyPair(new_seed("X")) for _ in range(3))
    for name, key in (("mine", mine), ("theirs", theirs), ("other", other)):
        (offline.home / name).write_text(key.seed)
    data = bytes(range(256)) * 3
    (offline.home / "text").write_bytes(data)
    nk = ("auth", "nkey")
    offline(*nk, "seal", "text", "mine", theirs.public, "--output", "sealed")
    raw = base64.b64decode((offline.home / "sealed").read_bytes())
    box = nacl.public.Box(
        nacl.public.PrivateKey(nkey_bytes(theirs)),
        nacl.public.PublicKey(read_public(mine.public)[1]),
    )
    assert (raw[:4], box.decrypt(raw[4:])) == (b"xkv1", data)
    offline(*nk, "unseal", "sealed", "theirs", mine.public, "--output", "again")
    assert (offline.home / "again").read_bytes() == data
    made = b"xkv1" + bytes(box.encrypt(b"from NaCl"))
    (offline.home / "made").write_bytes(made)
    opened = offline(*nk, "open", "made", "mine", theirs.public, "--no-b64").out
    assert opened == "from NaCl"
    line = (*nk, "unseal", "sealed")
    assert "sealed for another" in offline(*line, "other", mine.public, status=1).err
    assert "sealed for another" in offline(*line, "theirs", other.public, status=1).err
    user = KeyPair(new_seed("U")).public
    assert "begin with X" in offline(*nk, "seal", "text", "mine", user, status=1).err
    (offline.home / "sealed").write_bytes(base64.b64encode(raw[:-1] + b"?"))
    assert "was changed" in offline(*line, "theirs", mine.public, status=1).err
    (offline.home / "sealed").write_bytes(base64.b64encode(raw[:20]))
    assert "not sealed" in offline(*line, "theirs", mine.public, status=1).err
    (offline.home / "sealed").write_bytes(b"%")
    assert "not in base64" in offline(*line, "theirs", mine.public, status=1).err


def nkey_bytes(key: KeyPair) -> bytes:
    """The 32 bytes of a seed."""
    return base64.b32decode(key.seed + "=" * (-len(key.seed) % 8))[2:-2]


def test_a_backup_may_be_encrypted(acme: Cli) -> None:
    before = acme("auth", "operator", "generate").out
    for name in ("key", "other"):
        acme("auth", "nkey", "gen", "curve", "--output", name)
    acme("auth", "operator", "backup", "acme", "b", "--key", "key")
    assert not SECRET.search((acme.home / "b").read_text())
    acme("auth", "operator", "rm", "acme", "--force")
    restore = ("auth", "operator", "restore", "acme", "b")
    assert "--key" in acme(*restore, status=1).err
    assert "cannot be read with the key" in acme(*restore, "--key", "other", status=1).err
    acme(*restore, "--key", "key")
    assert acme("auth", "operator", "generate").out == before


# -- what JWTs say -----------------------------------------------------------------------------


def test_a_jwt_that_another_program_has_made_is_decoded(offline: Cli) -> None:
    operator, account, user = (KeyPair(new_seed(kind)) for kind in "OAU")
    jwts = {
        "operator": make_jwt(operator, operator.public, "op", {"type": "operator"}),
        "account": make_jwt(
            operator, account.public, "acc", {"type": "account", "limits": ACCOUNT_LIMITS}
        ),
        "user": make_jwt(
            account, user.public, "me", {"type": "user", "pub": {"deny": ["secret.>"]}}
        ),
        "activation": make_jwt(
            account, account.public, "act", {"type": "activation", "subject": "a.b"}
        ),
    }
    for kind, jwt in jwts.items():
        for said in (offline("jwt", "decode", jwt).out, offline("auth", "jwt", "decode", jwt).out):
            assert kind in said.lower()
        assert told(offline, "jwt", "d", jwt)["nats"]["type"] == kind
    assert "secret.>" in offline("jwt", "decode", jwts["user"]).out
    assert "a.b" in offline("jwt", "decode", jwts["activation"]).out


def _changed(jwt: str, part: int, change: Any) -> str:
    parts = jwt.split(".")
    raw = base64.urlsafe_b64decode(parts[part] + "=" * (-len(parts[part]) % 4))
    parts[part] = base64.urlsafe_b64encode(change(raw)).rstrip(b"=").decode()
    return ".".join(parts)


DAMAGES = {
    "cut off": lambda jwt: jwt[: len(jwt) // 2],
    "without its end": lambda jwt: jwt[:-5],
    "without a signature": lambda jwt: jwt.rpartition(".")[0] + ".",
    "two parts": lambda jwt: jwt.rpartition(".")[0],
    "another name": lambda jwt: _changed(jwt, 1, lambda raw: raw.replace(b"alice", b"malice")),
    "no JSON": lambda jwt: _changed(jwt, 1, lambda raw: b"nonsense"),
    "no object": lambda jwt: _changed(jwt, 1, lambda raw: b"[1]"),
    "no issuer": lambda jwt: _changed(jwt, 1, lambda raw: b"{}"),
    "an issuer that is none": lambda jwt: _changed(jwt, 1, lambda raw: b'{"iss": "A"}'),
    "another algorithm": lambda jwt: _changed(jwt, 0, lambda raw: b'{"typ":"JWT","alg":"none"}'),
    "empty": lambda jwt: "",
    "not ASCII": lambda jwt: jwt[:20] + "ü" + jwt[20:],
    "deep": lambda jwt: _changed(jwt, 1, lambda raw: b'{"a":' * 100_000),
    "bytes": lambda jwt: "\x00\x01\x02.\x03.\x04",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_jwt_is_refused_in_words(acme: Cli, damage: str) -> None:
    path = store(acme) / "stores/acme/accounts/ORDERS/users/alice.jwt"
    path.write_text(DAMAGES[damage](path.read_text()))
    for line in (("jwt", "decode", str(path)), ("auth", "user", "info", "alice", "ORDERS"),
                 ("auth", "user", "ls", "ORDERS")):  # fmt: skip
        refused = acme(*line, status=1).err
        assert refused.startswith("slipstream: ")
        assert str(path) in refused
        assert refused.count("\n") == 1


def test_claims_of_other_kinds_than_they_have_to_be_are_refused_in_words(acme: Cli) -> None:
    path = store(acme) / "stores/acme/accounts/ORDERS/users/alice.jwt"
    account = claims_in(store(acme) / "stores/acme/accounts/ORDERS/ORDERS.jwt")["sub"]
    (seed,) = (store(acme) / "keys/keys/A").rglob(f"{account}.nk")
    key = KeyPair(seed.read_text())
    subject = KeyPair(new_seed("U")).public
    for nats in ({"subs": "many"}, {"pub": []}, {"pub": {"allow": "a"}}, {"times": [1]},
                 {"tags": {}}, {"version": 9}, {"version": 1}, {"type": "account"}):  # fmt: skip
        path.write_text(make_jwt(key, subject, "alice", {"type": "user", **nats}))
        refused = acme("auth", "user", "info", "alice", "ORDERS", status=1).err
        assert str(path) in refused
        assert "Traceback" not in refused


@pytest.mark.parametrize("text", ["", "SUAA", "nonsense", "S" * 58, "\x00", "\xff" * 60])
def test_a_damaged_seed_is_refused_in_words(acme: Cli, text: str) -> None:
    alice = told(acme, "auth", "user", "info", "alice")["sub"]
    (path,) = (store(acme) / "keys").rglob(f"{alice}.nk")
    path.write_bytes(text.encode("latin-1"))
    lines = (
        ("auth", "user", "credential", "alice.creds", "alice"),
        ("auth", "user", "edit", "alice", "--payload", "1KB"),
        ("auth", "operator", "backup", "acme", "b"),
        ("auth", "nkey", "show", str(path)),
    )
    for line in lines:
        refused = acme(*line, status=1).err
        assert refused.startswith("slipstream: ")
        assert str(path) in refused


def test_a_key_file_of_somebody_else_is_refused(acme: Cli) -> None:
    alice = told(acme, "auth", "user", "info", "alice")["sub"]
    (path,) = (store(acme) / "keys").rglob(f"{alice}.nk")
    path.write_text(new_seed("U"))
    refused = acme("auth", "user", "credential", "alice.creds", "alice", status=1).err
    assert "has the key of U" in refused


def test_what_needs_a_private_key_that_is_elsewhere_says_so(acme: Cli) -> None:
    for path in (store(acme) / "keys/keys").rglob("*.nk"):
        path.unlink()
    for line in (
        ("user", "credential", "alice.creds", "alice"),
        ("user", "add", "bob", "ORDERS", "--defaults"),
        ("account", "edit", "ORDERS", "--connections", "1"),
        ("account", "add", "MORE", "--defaults"),
        ("operator", "edit", "--tags", "a"),
    ):
        assert "key store" in acme("auth", *line, status=1).err
    assert acme("auth", "user", "info", "alice").out


def test_an_account_is_signed_with_a_key_that_is_there(acme: Cli) -> None:
    first = acme("auth", "operator", "keys", "ls").out.strip()
    second = acme("auth", "operator", "keys", "add").out.strip()
    (path,) = (store(acme) / "keys/keys/O").rglob(f"{first}.nk")
    path.unlink()
    edit = ("auth", "account", "edit", "ORDERS", "--connections")
    assert told(acme, *edit, "1")["iss"] == second
    operator = told(acme, "auth", "operator", "info")["sub"]
    assert told(acme, *edit, "2", "--key", operator)["iss"] == operator
    assert told(acme, *edit, "3")["iss"] == operator
    assert first in acme(*edit, "4", "--key", first, status=1).err
    stranger = KeyPair(new_seed("O")).public
    assert "is no key with which" in acme(*edit, "4", "--key", stranger, status=1).err


def jwt_of(key: KeyPair, name: str, sub: str, **nats: Any) -> str:
    """The JWT of an operator, signed by itself, that says whatever is asked."""
    return make_jwt(key, sub, name, {"type": "operator", "version": 2} | nats)


def test_what_a_jwt_calls_a_key_is_never_a_path(acme: Cli) -> None:
    key = KeyPair(new_seed("O"))
    outside = acme.home / "k"
    outside.write_text("of somebody")
    path = acme.home / "evil.jwt"
    before = sorted(store(acme).rglob("*"))
    for sub in ("../../k", KeyPair(new_seed("U")).public, ""):
        path.write_text(jwt_of(key, "evil", sub))
        assert "is no operator" in acme("auth", "operator", "import", str(path), status=1).err
    assert sorted(store(acme).rglob("*")) == before
    path.write_text(jwt_of(key, "evil", key.public, signing_keys=["../../../../../k"]))
    acme("auth", "operator", "import", str(path))
    acme("auth", "operator", "rm", "evil", "--force")
    assert not (store(acme) / "stores" / "evil").exists()
    assert outside.exists()


def test_a_terminal_obeys_nothing_that_a_jwt_says(offline: Cli) -> None:
    key = KeyPair(new_seed("O"))
    name = "\x1b]0;title\x07\r\x9b2J"
    path = offline.home / "a.jwt"
    path.write_text(jwt_of(key, name, key.public, tags=["\x1b[8m"]))
    for line in (("jwt", "decode"), ("auth", "operator", "import")):
        shown = offline.on_terminal(*line, str(path)).out
        assert "\\x1b]0;title\\x07\\x0d\\x9b2J" in shown or "cannot name" in shown
        assert not re.search("[\x07\x9b]|\x1b[]]|\x1b.8m|\r(?!\n)", shown)


def test_of_commands_at_once_none_undoes_what_another_has_done(
    acme: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", acme.env["XDG_DATA_HOME"])
    one, other = (Store().operator("acme").account("ORDERS") for _ in range(2))
    one.claims.nats.revocations = {"*": 1}
    one.save()
    other.claims.nats.description = "of old"
    with pytest.raises(ConfigError, match="run it again"):
        other.save()
    one.claims.nats.description = "new"
    one.save()
    assert claims_in(one.path)["nats"]["revocations"] == {"*": 1}
    first, second = one.add_user("bob"), one.add_user("bob")
    first.save()
    before = sorted(store(acme).rglob("*"))
    with pytest.raises(ConfigError, match="run it again"):
        second.save()
    assert sorted(store(acme).rglob("*")) == before
    assert one.user("bob").public == first.public


def test_where_the_store_is_follows_the_environment(acme: Cli) -> None:
    acme.env.pop("XDG_DATA_HOME")
    acme.env["HOME"] = str(acme.home / "me")
    acme("auth", "operator", "add", "mine")
    assert (acme.home / "me/.local/share/nats/nsc/stores/mine/mine.jwt").exists()
    assert os.environ.get("HOME") != acme.env["HOME"]
