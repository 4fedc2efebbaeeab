"""What users may publish and subscribe to (docs/protocol/accounts.md#permissions)."""

import json
from typing import Any

import pytest

from slipstream.engine.session.permissions import Permissions, ResponseRights, SubscribePattern
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Driver
from slipstream.wire.transforms import Mappings
from tests.engine.raw import Listed, Raw, connect_as, user


def subscribe(*entries: str) -> tuple[SubscribePattern, ...]:
    """Entries of a subscribe list: "subject" or "subject queue"."""
    pairs = [entry.encode().partition(b" ") for entry in entries]
    return tuple(SubscribePattern(subject, queue) for subject, _, queue in pairs)


def driver_with(permissions: Permissions) -> Driver:
    """An engine with the user "limited", who has these permissions, and "free" without any."""
    return Driver(authenticator=Listed([user("limited", permissions=permissions), user("free")]))


def denied(*subjects: str) -> bytes:
    """What a publisher hears."""
    return b"".join(
        f"-ERR 'Permissions Violation for Publish to \"{s}\"'\r\n".encode() for s in subjects
    )


def refused(*subjects: str) -> bytes:
    """What a subscriber hears."""
    return b"".join(
        f"-ERR 'Permissions Violation for Subscription to \"{s}\"'\r\n".encode() for s in subjects
    )


def test_a_publish_needs_an_allow_entry_and_no_deny_entry() -> None:
    driver = driver_with(Permissions((b"foo.>", b"bar"), (b"foo.secret",)))
    other = Raw(driver, connect_as("free") + b"SUB > 1\r\n")
    raw = Raw(driver, connect_as("limited"))
    heard = raw.say(b"".join(b"PUB %b 0\r\n\r\n" % s for s in (b"foo.a", b"foo.secret", b"bar")))
    assert heard == denied("foo.secret")
    assert raw.say(b"PUB foo 0\r\n\r\nPUB baz 0\r\n\r\n") == denied("foo", "baz")
    assert not raw.closed
    assert other.take() == b"MSG foo.a 1 0\r\n\r\nMSG bar 1 0\r\n\r\n"


def test_a_denied_publish_gets_no_ok() -> None:
    driver = driver_with(Permissions((b"a",)))
    raw = Raw(driver, connect_as("limited", verbose=True))
    raw.take()
    assert raw.say(b"PUB b 0\r\n\r\nPUB a 0\r\n\r\n") == denied("b") + b"+OK\r\n"


def test_lists_that_are_empty_restrict_nothing() -> None:
    raw = Raw(driver_with(Permissions()), connect_as("limited"))
    assert raw.say(b"SUB > 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"


def test_the_reply_subject_of_a_publish_is_not_checked() -> None:
    raw = Raw(driver_with(Permissions((b"a",))), connect_as("limited") + b"SUB a 1\r\n")
    assert raw.say(b"PUB a anywhere 1\r\nx\r\n") == b"MSG a 1 anywhere 1\r\nx\r\n"


def test_a_publish_is_checked_under_the_subject_that_it_is_mapped_to() -> None:
    driver = driver_with(Permissions((b"good",)))
    mappings = driver.engine.default_account.mappings = Mappings(driver.engine.random)
    mappings.add("alias", [("good", 100)])
    mappings.add("good2", [("bad", 100)])
    raw = Raw(driver, connect_as("limited") + b"SUB > 1\r\n")
    assert raw.say(b"PUB alias 1\r\nx\r\n") == b"MSG good 1 1\r\nx\r\n"
    assert raw.say(b"PUB good2 1\r\nx\r\n") == denied("bad")


def test_a_subscription_has_to_lie_within_what_is_allowed() -> None:
    driver = driver_with(Permissions(subscribe_allow=subscribe("sub.>", "a.*")))
    raw = Raw(driver, connect_as("limited"))
    assert (
        raw.say(b"SUB sub.a 1\r\nSUB sub.* 2\r\nSUB sub.> 3\r\nSUB a.b 4\r\nSUB a.* 5\r\n") == b""
    )
    assert raw.say(b"SUB > 6\r\nSUB sub 7\r\nSUB a.> 8\r\nSUB * 9\r\n") == (
        refused(">", "sub", "a.>", "*")
    )


def test_a_wider_subscription_than_what_is_denied_is_filtered_at_delivery() -> None:
    rules = Permissions(subscribe_deny=subscribe("sub.deny", "sub.x.>"))
    driver = driver_with(rules)
    raw = Raw(driver, connect_as("limited") + b"SUB sub.> 1\r\nSUB sub.*.* q 2\r\n")
    assert raw.say(b"SUB sub.deny 3\r\nSUB sub.x.y 4\r\nSUB sub.x.* 5\r\n") == (
        refused("sub.deny", "sub.x.y", "sub.x.*")
    )
    free = Raw(driver, connect_as("free"))
    free.say(b"PUB sub.deny 1\r\n1\r\nPUB sub.x.y 1\r\n2\r\nPUB sub.ok 1\r\n3\r\n")
    assert raw.take() == b"MSG sub.ok 1 1\r\n3\r\n"


def test_what_is_filtered_at_delivery_was_heard_by_nobody() -> None:
    driver = driver_with(Permissions(subscribe_deny=subscribe("a.b")))
    Raw(driver, connect_as("limited") + b"SUB a.* 1\r\n")
    free = Raw(driver, connect_as("free") + b"SUB r 1\r\n")
    assert b"503" in free.say(b"PUB a.b r 0\r\n\r\n")


@pytest.mark.parametrize(
    ("allowed", "queue", "is_allowed"),
    [
        ("q1 grp", b"", False),
        ("q1 grp", b" grp", True),
        ("q1 grp", b" other", False),
        ("q1 v1.*", b" v1.a", True),
        ("q1 v1.*", b" v2.a", False),
        ("q1", b" any", True),
    ],
)
def test_an_entry_may_name_the_queue_group(allowed: str, queue: bytes, is_allowed: bool) -> None:
    driver = driver_with(Permissions(subscribe_allow=subscribe(allowed)))
    heard = Raw(driver, connect_as("limited")).say(b"SUB q1%b 1\r\n" % queue)
    assert (heard == b"") is is_allowed
    if not is_allowed and queue:
        assert heard == (
            b'-ERR \'Permissions Violation for Subscription to "q1" using queue "%b"\'\r\n'
            % queue.strip()
        )


def test_denying_a_queue_group_denies_only_its_members() -> None:
    driver = driver_with(Permissions(subscribe_deny=subscribe("dq dd")))
    heard = Raw(driver, connect_as("limited")).say(b"SUB dq 1\r\nSUB dq dd 2\r\nSUB dq ee 3\r\n")
    assert heard == (
        b'-ERR \'Permissions Violation for Subscription to "dq" using queue "dd"\'\r\n'
    )


# -- allow_responses ---------------------------------------------------------------------------


def test_a_responder_may_answer_each_message_once_and_publish_nothing_else() -> None:
    driver = driver_with(Permissions(allow_responses=(1, 120 * SECOND)))
    service = Raw(driver, connect_as("limited") + b"SUB help 1\r\n")
    client = Raw(driver, connect_as("free") + b"SUB in.* 1\r\n")
    assert service.say(b"PUB in.1 0\r\n\r\n") == denied("in.1")
    client.say(b"PUB help in.1 1\r\n?\r\n")
    service.take()
    assert service.say(b"PUB in.1 1\r\n!\r\nPUB in.1 1\r\n!\r\n") == denied("in.1")
    assert client.take() == b"MSG in.1 1 1\r\n!\r\n"


def test_a_right_to_answer_has_a_number_and_a_time() -> None:
    driver = driver_with(Permissions((b"out",), allow_responses=(2, SECOND)))
    service = Raw(driver, connect_as("limited") + b"SUB help 1\r\n")
    client = Raw(driver, connect_as("free"))
    client.say(b"PUB help in.1 0\r\n\r\nPUB help in.2 0\r\n\r\n")
    service.take()
    assert service.say(b"PUB out 0\r\n\r\n" + b"PUB in.1 0\r\n\r\n" * 3) == denied("in.1")
    driver.advance(SECOND + 1)
    assert service.say(b"PUB in.2 0\r\n\r\n") == denied("in.2")


def test_a_right_to_answer_without_bounds_lasts() -> None:
    driver = driver_with(Permissions(allow_responses=(-1, -1)))
    service = Raw(driver, connect_as("limited") + b"SUB help 1\r\n")
    Raw(driver, connect_as("free")).say(b"PUB help in.1 0\r\n\r\n")
    service.take()
    driver.advance(1000 * SECOND)
    service.take()
    assert service.say(b"PONG\r\n" + b"PUB in.1 0\r\n\r\n" * 50) == b""


def test_rights_to_answer_that_ran_out_do_not_pile_up() -> None:
    rights = ResponseRights(1, SECOND)
    for moment in range(20):
        for i in range(1000):
            rights.grant(b"in.%d.%d" % (moment, i), moment * 2 * SECOND)
    assert len(rights) <= 4096


# -- who may come in ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opening",
    [b"PING\r\n", b"P", b"SUB a 1\r\n", b"FOO\r\n", b"\r\n", b"PUB a x\r\n", b"CONNECT {}\r\n"],
)
def test_who_does_not_say_who_it_is_has_to_leave(opening: bytes) -> None:
    raw = Raw(Driver(authenticator=Listed([user("a")])))
    assert raw.say(opening) == b"-ERR 'Authorization Violation'\r\n"
    assert raw.closed
    assert raw.reason == "Authentication Failure"


def test_wrong_credentials_are_refused_before_anything_else_is_looked_at() -> None:
    raw = Raw(Driver(authenticator=Listed([user("a")])))
    assert raw.say(b'CONNECT {"user":"a","pass":"b","protocol":7}\r\n') == (
        b"-ERR 'Authorization Violation'\r\n"
    )


def test_a_connect_may_come_in_pieces() -> None:
    raw = Raw(Driver(authenticator=Listed([user("a")])))
    opening = connect_as("a")
    assert raw.say(opening[:3]) == b""
    assert raw.say(opening[3:] + b"PING\r\n") == b"PONG\r\n"


def test_an_endless_connect_is_too_long() -> None:
    raw = Raw(Driver(authenticator=Listed([user("a")])))
    assert raw.say(b"CONNECT " + b"x" * 5000) == b"-ERR 'maximum control line exceeded'\r\n"


def test_the_user_for_those_without_credentials_needs_no_connect() -> None:
    driver = Driver(authenticator=Listed([user("a"), user("b", "$SYS")], nobody="b"))
    raw = Raw(driver)
    assert raw.say(b"SUB x 1\r\n") == b"+OK\r\n"
    assert raw.session.account.name == "$SYS"
    assert Raw(driver).say(b'CONNECT {"user":"a","pass":"wrong"}\r\n') == (
        b"-ERR 'Authorization Violation'\r\n"
    )


def test_a_client_that_says_nothing_runs_out_of_time() -> None:
    driver = Driver(authenticator=Listed([user("a")]))
    driver.options.auth_required = True
    raw = Raw(driver)
    assert raw.info["auth_required"] is True
    driver.advance(SECOND)
    assert not raw.closed
    driver.advance(2 * SECOND)
    assert raw.take() == b"-ERR 'Authentication Timeout'\r\n"
    assert raw.reason == "Authentication Timeout"


def test_a_client_that_is_known_in_time_is_pinged_like_others() -> None:
    driver = Driver(authenticator=Listed([user("a")]))
    driver.options.auth_required = True
    raw = Raw(driver, connect_as("a"))
    driver.advance(3 * SECOND)
    assert raw.take() == b"PING\r\n"
    assert not raw.closed


def test_what_comes_in_while_the_password_is_checked_waits() -> None:
    class Slow(Listed):
        """Lets the test say when a password has been checked."""

        def authenticate(self, session: object, done: object) -> None:
            self.done = done

    slow = Slow([user("a")])
    raw = Raw(Driver(authenticator=slow))
    assert raw.say(connect_as("a") + b"SUB x 1\r\nPI") == b""
    assert raw.say(b"NG\r\nPUB x 1\r\ny\r\n") == b""
    assert callable(slow.done)
    slow.done(user("a"))
    raw.driver.finish()
    assert raw.take() == b"PONG\r\nMSG x 1 1\r\ny\r\n"


# -- what is denied, in what a consumer delivers -------------------------------------------------


class Deliveries:
    """A stream with a secret and an open message, and the user "limited", who is denied secrets."""

    def __init__(self) -> None:
        self.driver = driver_with(Permissions(subscribe_deny=subscribe("secret.>")))
        self.driver.start()
        self.admin = Raw(self.driver, connect_as("free") + b"SUB api 9\r\n")
        self.ask("STREAM.CREATE.S", b'{"name":"S","subjects":["secret.>","open.>"],'
                 b'"allow_direct":true,"storage":"memory"}')  # fmt: skip
        self.admin.say(b"PUB secret.a 1\r\n1\r\nPUB open.a 1\r\n2\r\n")

    def ask(self, subject: str, body: bytes) -> bytes:
        return self.admin.say(b"PUB $JS.API.%b api %d\r\n%b\r\n" % (
            subject.encode(), len(body), body))  # fmt: skip

    def limited(self, *subscriptions: bytes) -> Raw:
        """The user's connection."""
        raw = Raw(self.driver, connect_as("limited"))
        for line in subscriptions:
            assert raw.say(line + b"\r\n") == b""
        return raw

    def consumer(self, **fields: object) -> None:
        config = {"durable_name": "C", "name": "C", "ack_policy": "none"} | fields
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        assert b"error" not in self.ask("CONSUMER.CREATE.S.C", body)

    def info(self) -> dict[str, Any]:
        answer = self.ask("CONSUMER.INFO.S.C", b"")
        found: dict[str, Any] = json.loads(answer.split(b"\r\n")[1])
        return found


def subjects(data: bytes) -> list[str]:
    """Of the messages in what was sent."""
    lines = data.split(b"\r\n")
    return [line.split()[1].decode() for line in lines if line.startswith((b"MSG ", b"HMSG "))]


@pytest.mark.parametrize(
    ("held", "seen"),
    [
        ((b"SUB in.a 1", b"SUB *.z 2"), ["open.a"]),
        ((b"SUB in.* 1", b"SUB > 2", b"UNSUB 2"), ["open.a"]),
        ((b"SUB in.* 1", b"SUB other.* 2"), ["secret.a", "open.a"]),
    ],
)
def test_once_a_wildcard_overlaps_what_is_denied_pushed_messages_are_filtered(
    held: tuple[bytes, ...], seen: list[str]
) -> None:
    world = Deliveries()
    raw = world.limited(*held)
    world.consumer(deliver_subject="in.a")
    assert subjects(raw.take()) == seen
    assert world.info()["delivered"]["consumer_seq"] == 2


def test_pushed_messages_after_one_that_is_denied_are_delivered() -> None:
    world = Deliveries()
    raw = world.limited(b"SUB in.a 1", b"SUB *.z 2")
    world.consumer(deliver_subject="in.a")
    raw.take()
    world.admin.say(b"PUB secret.b 0\r\n\r\nPUB open.b 0\r\n\r\n")
    assert subjects(raw.take()) == ["open.b"]


def test_of_a_deliver_group_the_member_that_may_gets_what_is_denied_to_the_other() -> None:
    world = Deliveries()
    denied_one = world.limited(b"SUB in.a q 1", b"SUB *.z 2")
    other = Raw(world.driver, connect_as("free") + b"SUB in.a q 1\r\n")
    world.admin.say(b"PUB secret.b 0\r\n\r\n" * 20)
    world.consumer(deliver_subject="in.a", deliver_group="q")
    assert set(subjects(denied_one.take())) <= {"open.a"}
    assert subjects(other.take()).count("secret.b") == 20


def test_pulled_messages_are_filtered_and_wait_for_somebody_who_may_see_them() -> None:
    world = Deliveries()
    world.consumer(ack_policy="explicit")
    raw = world.limited(b"SUB in.a 1", b"SUB *.z 2")
    asked = raw.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C in.a 1\r\n2\r\n")
    assert subjects(asked) == ["open.a"]
    assert world.info()["num_ack_pending"] == 2
    other = Raw(world.driver, connect_as("free") + b"SUB in.b 1\r\n")
    other.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C in.b 1\r\n5\r\n")
    world.driver.advance(30 * SECOND)
    assert "secret.a" in subjects(other.take())


def test_a_direct_get_answers_under_the_reply_subject_which_is_not_denied() -> None:
    world = Deliveries()
    raw = world.limited(b"SUB in.a 1", b"SUB *.z 2")
    body = b'{"last_by_subj":"secret.a"}'
    found = raw.say(b"PUB $JS.API.DIRECT.GET.S in.a %d\r\n%b\r\n" % (len(body), body))
    assert subjects(found) == ["in.a"]


def test_a_consumer_whose_listener_has_gone_does_not_deliver_into_the_void() -> None:
    world = Deliveries()
    raw = world.limited(b"SUB *.z 2", *(b"SUB x.%d %d" % (i, i) for i in range(10, 400)))
    raw.say(b"SUB in.a 1\r\n")
    world.consumer(deliver_subject="in.a")
    raw.session.gone("Client Closed")
    world.admin.say(b"PUB open.b 0\r\n\r\n")
    assert world.info()["num_pending"] == 1
