"""What imports keep to: bounds, times, permissions, reloads, and configurations made to hurt."""

from typing import Any

import pytest

from slipstream.engine.session.permissions import Permissions, SubscribePattern
from slipstream.model.durations import SECOND
from slipstream.server.config import load_text
from slipstream.server.engine_options import prepare_accounts
from slipstream.testing.driver import Driver
from tests.engine.raw import Listed, Raw, connect_as, user

BASE = """
    A { jetstream: enabled, exports: [ EXPORTS ], imports: [ OWN ] }
    B { jetstream: enabled, imports: [ IMPORTS ] }
"""


def configure(driver: Driver, exports: str, imports: str, own: str = "", more: str = "") -> None:
    """Have the engine's accounts be as a file says: A exports, B imports."""
    text = BASE.replace("EXPORTS", exports).replace("IMPORTS", imports).replace("OWN", own)
    options = load_text(f"accounts {{ {text} {more} }}").options
    options.validate()
    prepare_accounts(driver.engine, options)


def driver_of(exports: str, imports: str, own: str = "", more: str = "") -> Driver:
    """An engine with such accounts; `a` and `b` are users of A and B, `c` and `d` of C and D."""
    users = [user("a", "A"), user("b", "B"), user("c", "C"), user("d", "D")]
    narrow = Permissions(publish_allow=(b"local.*",))
    driver = Driver(authenticator=Listed([*users, user("narrow", "B", narrow)]))
    configure(driver, exports, imports, own, more)
    return driver.start()


def client(driver: Driver, name: str, *said: bytes) -> Raw:
    """A connection of that user, which has said something."""
    return Raw(driver, connect_as(name), *said)


def replies_in(told: bytes) -> list[bytes]:
    """The reply subjects in what a responder was told."""
    words = [line.split(b" ") for line in told.split(b"\r\n") if line.startswith(b"HMSG")]
    return [word for line in words for word in line if word.startswith(b"_R_.")]


def answer(told: bytes, body: bytes = b"x") -> bytes:
    """Publishes of an answer to each request in `told`."""
    return b"".join(b"PUB %b %d\r\n%b\r\n" % (r, len(body), body) for r in replies_in(told))


def heard(raw: Raw) -> bytes:
    """What came, but for the server's question whether the client is there."""
    return raw.take().replace(b"PING\r\n", b"")


HELP = '{ service: "help", response_type: stream, threshold: "5s" }'
ASK = '{ service: { account: A, subject: "help" }, to: "local.help" }'


def test_a_reply_subject_is_forgotten_when_nothing_came_for_its_time() -> None:
    driver = driver_of(HELP, ASK)
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "b", b"SUB in.* 1\r\n")
    b.say(b"PUB local.help in.1 1\r\n?\r\n")
    told = a.take()
    for _ in range(3):  # each answer gives the next one its time
        driver.advance(4 * SECOND)
        a.say(answer(told))
        assert heard(b) == b"MSG in.1 1 1\r\nx\r\n"
    driver.advance(6 * SECOND)
    a.say(answer(told))
    assert heard(b) == b""
    assert len(driver.engine.accounts["A"].replies) == 0


def test_requests_that_nobody_answers_take_a_bounded_place() -> None:
    driver = driver_of(HELP, ASK)
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "b", b"SUB in.* 1\r\n")
    b.say(b"PUB local.help in.first 0\r\n\r\n")
    first = a.take()
    for _ in range(66):
        b.say(b"PUB local.help in.x 0\r\n\r\n" * 1_000)
    assert len(driver.engine.accounts["A"].replies) == 65_536
    last = a.take()
    a.say(answer(first))
    assert b.take() == b""  # it has made room
    a.say(answer(last[last.rindex(b"HMSG") :]))
    assert b.take() == b"MSG in.x 1 1\r\nx\r\n"
    driver.advance(6 * SECOND)
    assert len(driver.engine.accounts["A"].replies) == 0


def test_what_a_requester_no_longer_wants_is_not_kept() -> None:
    driver = driver_of(HELP, ASK)
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "b", b"SUB in.* 1\r\n")
    b.say(b"PUB local.help in.1 0\r\n\r\n")
    told = a.take()
    b.say(b"UNSUB 1\r\n")
    assert len(driver.engine.accounts["A"].replies) == 0
    b.say(b"SUB in.* 2\r\n")
    a.say(answer(told))
    assert b.take() == b""


def test_a_request_that_nobody_takes_is_not_kept() -> None:
    driver = driver_of(HELP, ASK)
    client(driver, "a")
    b = client(driver, "b", b"SUB in.* 1\r\n")
    assert b"503" in b.say(b"PUB local.help in.1 0\r\n\r\n")
    assert driver.engine.accounts["A"].replies is None


def test_a_pull_request_of_who_has_gone_gets_no_message() -> None:
    driver = driver_of(
        '{ service: "$JS.API.>", response_type: stream }',
        '{ service: { account: A, subject: "$JS.API.>" }, to: "other.>" }',
    )
    owner = driver.client(driver.engine.accounts["A"], user="a", **{"pass": "a"})
    owner.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    config = {"durable_name": "C", "ack_policy": "explicit"}
    owner.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    b = client(driver, "b", b"SUB in.* 1\r\n")
    b.say(b"PUB other.CONSUMER.MSG.NEXT.S.C in.1 2\r\n10\r\n")
    assert owner.api("CONSUMER.INFO.S.C")["num_waiting"] == 1
    b.say(b"UNSUB 1\r\n")
    owner.store("s")
    info = owner.api("CONSUMER.INFO.S.C")
    assert (info["num_waiting"], info["num_ack_pending"], info["num_pending"]) == (0, 0, 1)


def test_an_account_without_jetstream_uses_that_of_another_by_its_own_name() -> None:
    driver = driver_of(
        '{ service: "$JS.API.>" }',
        "",
        more='C { imports: [ { service: { account: A, subject: "$JS.API.>" } } ] }',
    )
    c = client(driver, "c", b"SUB in.* 1\r\n")
    said = c.say(b"PUB $JS.API.INFO in.1 0\r\n\r\n")
    assert said.count(b"account_info_response") == 1
    assert b"10039" not in said


def test_permissions_are_those_of_the_name_in_the_importing_account() -> None:
    driver = driver_of(HELP, f'{ASK}, {{ service: {{ account: A, subject: "help" }}, to: "no" }}')
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "narrow")
    assert b.say(b"PUB local.help 1\r\n?\r\n") == b""
    assert a.take().startswith(b"HMSG help")
    assert b"Permissions Violation" in b.say(b"PUB no 1\r\n?\r\n")
    assert b"Permissions Violation" in b.say(b"PUB local.help _R_.x.y 1\r\n?\r\n")
    assert a.take() == b""


def test_a_reload_takes_imports_away_and_leaves_the_others_alone() -> None:
    exports = f'{{ stream: "s.>" }}, {{ stream: "t.>" }}, {HELP}, {{ service: "old" }}'
    first = '{ stream: { account: A, subject: "s.>" } }, ' + ASK
    driver = driver_of(exports, first + ', { service: { account: A, subject: "old" } }')
    a, b = client(driver, "a", b"SUB help 1\r\nSUB old 2\r\n"), client(driver, "b", b"SUB > 1\r\n")
    b.say(b"PUB local.help in.1 0\r\n\r\n")
    told = a.take()
    b.take()
    configure(driver, exports, '{ stream: { account: A, subject: "t.>" } }, ' + ASK)
    a.say(b"PUB s.1 0\r\n\r\nPUB t.1 0\r\n\r\n")
    assert b.take() == b"MSG t.1 1 0\r\n\r\n"
    a.say(answer(told))
    assert b.take() == b"MSG in.1 1 1\r\nx\r\n"
    b.say(b"PUB old 0\r\n\r\n")
    assert a.take() == b""
    configure(driver, exports, "")
    a.say(b"PUB t.1 0\r\n\r\n" + answer(told))
    b.say(b"PUB local.help 0\r\n\r\n")
    assert (a.take(), driver.engine.accounts["A"].trie.size) == (b"", _size_of(driver, exports))
    b.take()


def _size_of(driver: Driver, exports: str) -> int:
    """How many listen in account A where nothing was ever imported, but for the replies."""
    fresh = driver_of(exports, "")
    client(fresh, "a", b"SUB help 1\r\nSUB old 2\r\n")
    return fresh.engine.accounts["A"].trie.size + 1


def test_an_account_may_rename_its_own_subjects() -> None:
    own = """
        { stream: { account: A, subject: "s.*" }, to: "renamed.$1" }
        { service: { account: A, subject: "help" }, to: "me.help" }
    """
    driver = driver_of(f'{{ stream: "s.*" }}, {HELP}', "", own)
    a = client(driver, "a", b"SUB renamed.* 1\r\nSUB help 2\r\n")
    asker = client(driver, "a", b"SUB in.* 1\r\n")
    assert a.say(b"PUB s.1 0\r\n\r\n") == b"MSG renamed.1 1 0\r\n\r\n"
    asker.say(b"PUB me.help in.1 0\r\n\r\n")
    a.say(answer(a.take()))
    assert asker.take() == b"MSG in.1 1 1\r\nx\r\n"


def test_a_service_that_imports_itself_ends() -> None:
    own = '{ service: { account: A, subject: "help" } }'
    driver = driver_of(HELP, "", own)
    asker = client(driver, "a", b"SUB in.* 1\r\n")
    assert b"503" in asker.say(b"PUB help in.1 0\r\n\r\n")
    responder = client(driver, "a", b"SUB help 1\r\n")
    asker.say(b"PUB help in.2 0\r\n\r\n")
    assert responder.take()
    assert asker.say(b"PING\r\n").endswith(b"PONG\r\n")


def test_thousands_of_imports_cost_a_message_nothing_more() -> None:
    names = range(3_000)
    imports = "\n".join(
        f'{{ stream: {{ account: A, subject: "s.{n}" }}, to: "t.{n}" }}\n'
        f'{{ service: {{ account: A, subject: "v.{n}" }}, to: "w.{n}" }}'
        for n in names
    )
    driver = driver_of('{ stream: "s.*" }, { service: "v.*" }', imports)
    a, b = client(driver, "a", b"SUB v.* 1\r\n"), client(driver, "b", b"SUB t.7 1\r\n")
    a.say(b"PUB s.7 0\r\n\r\nPUB s.8 0\r\n\r\n")
    assert b.take() == b"MSG t.7 1 0\r\n\r\n"
    b.say(b"PUB w.9 0\r\n\r\n")
    assert a.take().startswith(b"HMSG v.9 1 ")
    everything = client(driver, "b", b"SUB > 1\r\n")
    a.say(b"PUB s.2999 0\r\n\r\n")
    assert everything.take() == b"MSG t.2999 1 0\r\n\r\n"
    everything.say(b"UNSUB 1\r\n")
    a.say(b"PUB s.2999 0\r\n\r\n")
    assert everything.take() == b""


@pytest.mark.parametrize("accounts", [2, 3, 5])
def test_a_loop_of_any_length_is_refused(accounts: int) -> None:
    text = ""
    for kind in ("stream", "service"):
        text = "".join(
            f'N{n} {{ exports: [ {{ {kind}: "x.>" }} ], imports: [ {{ {kind}: '
            f'{{ account: N{(n + 1) % accounts}, subject: "x.>" }} }} ] }}\n'
            for n in range(accounts)
        )
        with pytest.raises(Exception, match=f"Error adding {kind} import .*forms a cycle"):
            load_text(f"accounts {{ {text} }}")


def test_mappings_of_the_exporting_account_apply_to_what_is_asked() -> None:
    more = 'C { mappings: { "help": "help.v2" }, exports: [ { service: "help" } ] }'
    driver = driver_of("", '{ service: { account: C, subject: "help" } }', more=more)
    c, b = client(driver, "c", b"SUB help.> 1\r\n"), client(driver, "b")
    b.say(b"PUB help 0\r\n\r\n")
    assert c.take().startswith(b"HMSG help.v2 1 ")


def test_two_imports_of_one_message_deliver_it_twice() -> None:
    imports = """
        { stream: { account: A, subject: "s.>" } }
        { stream: { account: A, subject: "s.*" }, to: "also.$1" }
    """
    driver = driver_of('{ stream: "s.>" }', imports)
    a, b = client(driver, "a"), client(driver, "b", b"SUB > 1\r\n")
    a.say(b"PUB s.1 0\r\n\r\n")
    assert sorted(b.take().split(b"\r\n\r\n")) == [b"", b"MSG also.1 1 0", b"MSG s.1 1 0"]


def test_an_account_that_imports_nothing_knows_nothing_of_it() -> None:
    driver = driver_of(HELP, "")
    for account in driver.engine.accounts.values():
        found: list[Any] = [account.imports, account.service_imports, account.replies]
        assert found == [None, None, None]


def test_a_request_through_two_accounts_that_nobody_answers_is_told_so() -> None:
    driver = driver_of(
        HELP,
        f'{ASK} ], exports: [ {{ service: "local.help" }}',
        more='C { imports: [ { service: { account: B, subject: "local.help" }, to: "far" } ] }',
    )
    c = client(driver, "c", b"SUB in.* 1\r\n")
    said = c.say(b"PUB far in.1 0\r\n\r\n")
    assert said == b"HMSG in.1 1 35 35\r\nNATS/1.0 503\r\nNats-Subject: far\r\n\r\n\r\n"
    assert len(driver.engine.accounts["B"].replies) == 0


def test_who_may_only_answer_may_answer_another_account() -> None:
    driver = driver_of(HELP, ASK)
    answering = Permissions(publish_allow=(b"none",), allow_responses=(1, -1))
    driver.engine.authenticator = Listed(
        [user("a", "A", answering), user("b", "B"), user("A", "A"), user("B", "B")]
    )
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "b", b"SUB in.* 1\r\n")
    b.say(b"PUB local.help in.1 0\r\n\r\n")
    told = a.take()
    assert a.say(answer(told)) == b""
    assert b.take() == b"MSG in.1 1 1\r\nx\r\n"
    assert b"Permissions Violation" in a.say(answer(told))


def test_who_may_not_receive_an_imported_subject_does_not() -> None:
    driver = driver_of('{ stream: "s.>" }', '{ stream: { account: A, subject: "s.>" } }')
    denied = Permissions(subscribe_deny=(SubscribePattern(b"s.secret"),))
    driver.engine.authenticator = Listed([user("a", "A"), user("b", "B", denied)])
    a, b = client(driver, "a"), client(driver, "b", b"SUB s.* 1\r\n")
    a.say(b"PUB s.secret 0\r\n\r\nPUB s.open 0\r\n\r\n")
    assert b.take() == b"MSG s.open 1 0\r\n\r\n"


def test_a_client_that_is_cut_off_leaves_nothing_in_the_other_account() -> None:
    driver = driver_of('{ stream: "s.>" }', '{ stream: { account: A, subject: "s.>" } }')
    size = driver.engine.accounts["A"].trie.size
    many = b"".join(b"SUB s.%d %d\r\n" % (n, n) for n in range(1_000))
    b = client(driver, "b", many, b"SUB s.1 x 2000\r\nUNSUB 2000 3\r\n")
    assert driver.engine.accounts["A"].trie.size == size + 1_001
    b.session.close("Client Closed")
    driver.finish()
    assert driver.engine.accounts["A"].trie.size == size


def test_an_imported_subscription_ends_after_its_last_message() -> None:
    driver = driver_of('{ stream: "s.>" }', '{ stream: { account: A, subject: "s.>" } }')
    a, b = client(driver, "a"), client(driver, "b", b"SUB s.* 1\r\nUNSUB 1 2\r\n")
    size = driver.engine.accounts["A"].trie.size
    a.say(b"PUB s.1 0\r\n\r\n" * 5)
    assert b.take() == b"MSG s.1 1 0\r\n\r\n" * 2
    assert driver.engine.accounts["A"].trie.size == size - 1


@pytest.mark.parametrize(
    "block",
    [
        b'NATS/1.0\r\nNats-Request-Info: {"acc":"X"}\r\n\r\n',
        b'NATS/1.0\r\nnats-request-INFO: {"acc":"X"}\r\n\r\n',
        b'NATS/1.0\nNats-Request-Info: {"acc":"X"}\r\n\r\n',
        b'NATS/1.0\r\nNats-Request-Info : {"acc":"X"}\r\n\r\n',
        b'NATS/1.0\r\nNats-Request-Info: {"acc":"X"}',
        b"NATS/1.0\r\nA: b\r\nNats-",
        b"NATS/1.0",
    ],
)
def test_who_asks_is_said_by_the_server_alone(block: bytes) -> None:
    driver = driver_of(HELP, ASK)
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "b")
    assert b.say(b"HPUB local.help %d %d\r\n%b\r\n" % (len(block), len(block), block)) == b""
    told = a.take()
    assert told.endswith(b'\r\nNats-Request-Info: {"acc":"B"}\r\n\r\n\r\n')
    assert b'"X"' not in told


@pytest.mark.parametrize("reply", [b"in.*", b"in.>", b"in..x", b">", b".", b"in.>.x"])
def test_a_reply_subject_that_is_invalid_hurts_nobody(reply: bytes) -> None:
    driver = driver_of(HELP, ASK)
    a, b = client(driver, "a", b"SUB help 1\r\n"), client(driver, "b", b"SUB in.* 1\r\n")
    for one in (reply, b"in.x", reply, b"in.y"):
        b.say(b"PUB local.help %b 0\r\n\r\n" % one)
    told = a.take()
    b.say(b"UNSUB 1\r\nSUB in.* 1\r\n")
    a.say(answer(told))
    driver.advance(20 * SECOND)
    assert len(driver.engine.accounts["A"].replies) == 0
    assert not a.closed
    assert not b.closed


def test_long_reply_subjects_take_a_bounded_place() -> None:
    driver = driver_of(HELP, ASK)
    b = client(driver, "b", b"SUB in.> 1\r\n")
    client(driver, "a", b"SUB help x 1\r\n")
    name = b"in." + b"x" * 3_900
    for n in range(5_000):
        b.say(b"PUB local.help %b.%d 0\r\n\r\n" % (name, n))
    assert len(driver.engine.accounts["A"].replies) * 3_900 <= 16 * 1024 * 1024


def test_a_loop_that_mappings_close_ends() -> None:
    more = """
        C {
          mappings: { "q.*": "back" }
          exports: [ { service: "q.*" } ]
          imports: [ { service: { account: D, subject: "there" }, to: "back" } ]
        }
        D {
          mappings: { "there": "far" }
          exports: [ { service: "there" } ]
          imports: [ { service: { account: C, subject: "q.1" }, to: "far" } ]
        }
    """
    driver = driver_of(HELP, "", more=more)
    c = client(driver, "c", b"SUB in.* 1\r\n")
    assert b"503" in c.say(b"PUB back in.1 0\r\n\r\n")
    for name in ("C", "D"):
        assert len(driver.engine.accounts[name].replies) == 0
