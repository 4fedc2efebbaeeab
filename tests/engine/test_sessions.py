"""What a client may say and what it hears (docs/protocol/client.md), byte for byte."""

from collections.abc import Callable

import pytest

from slipstream.engine.engine import User
from slipstream.engine.protocol.options import EngineOptions
from slipstream.engine.session.session import ClientSession
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Driver
from tests.engine.raw import MODERN, QUIET, Raw, user

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


def test_the_greeting_says_what_the_server_is_and_can(driver: Driver) -> None:
    info = Raw(driver).info
    assert info["server_name"] == "here"
    assert len(info["server_id"]) == 56
    assert info["server_id"][0] == "N"
    assert info["proto"] == 1
    assert info["headers"] is True
    assert info["jetstream"] is True
    assert info["max_payload"] == 1024 * 1024
    assert info["client_ip"] == "10.0.0.7"
    assert isinstance(info["go"], str)
    assert tuple(map(int, info["version"].split(".")))[:2] >= (2, 12)
    assert not {"auth_required", "tls_required", "nonce", "ldm", "connect_info", "domain"} & set(
        info
    )


def test_each_connection_has_a_number_of_its_own(driver: Driver) -> None:
    assert Raw(driver).info["client_id"] != Raw(driver).info["client_id"]


# -- CONNECT -----------------------------------------------------------------------------------


def test_connect_without_options_is_verbose_pedantic_and_hears_itself(driver: Driver) -> None:
    raw = Raw(driver)
    assert raw.say(b"CONNECT {}\r\nPING\r\n") == b"+OK\r\nPONG\r\n"
    assert raw.say(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\n"
    assert raw.say(b"PUB a.* 0\r\n\r\n") == b"-ERR 'Invalid Publish Subject'\r\n+OK\r\n"


def test_connect_is_optional_where_nobody_has_to_say_who_it_is(driver: Driver) -> None:
    raw = Raw(driver)
    assert raw.say(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\n"


def test_keys_of_connect_have_no_case_and_null_says_nothing(driver: Driver) -> None:
    assert Raw(driver).say(b'CONNECT {"VERBOSE":false,"name":null,"zzz":[1]}\r\nPING\r\n') == (
        b"PONG\r\n"
    )
    assert Raw(driver).say(b"CONNECT null\r\nPING\r\n") == b"+OK\r\nPONG\r\n"


@pytest.mark.parametrize(
    "argument", [b"", b" {", b" []", b" {} x", b' {"verbose":"yes"}', b' {"protocol":"1"}']
)
def test_a_connect_that_can_not_be_read_closes_without_a_word(
    driver: Driver, argument: bytes
) -> None:
    raw = Raw(driver)
    assert raw.say(b"CONNECT%b\r\n" % argument) == b""
    assert raw.closed


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (b'{"protocol":2}', b"invalid client protocol"),
        (b'{"protocol":-1}', b"invalid client protocol"),
        (b'{"no_responders":true}', b"no responders requires headers support"),
        (b'{"account":"X"}', b"Authorization Violation"),
        (b'{"new_account":true}', b"Authorization Violation"),
    ],
)
def test_options_that_can_not_be_had_close_the_connection(
    driver: Driver, options: bytes, error: bytes
) -> None:
    raw = Raw(driver)
    assert raw.say(b"CONNECT %b\r\n" % options) == b"-ERR '%b'\r\n" % error
    assert raw.closed


def test_a_second_connect_starts_over_without_subscriptions(driver: Driver) -> None:
    raw = Raw(driver, MODERN + b"SUB a 1\r\n")
    assert raw.say(b"CONNECT {}\r\nPUB a 1\r\nx\r\n") == b"+OK\r\n+OK\r\n"
    assert driver.engine.default_account.trie.match(b"a") == []


def test_after_its_first_ping_a_modern_client_hears_which_account_it_is_in(driver: Driver) -> None:
    raw = Raw(driver, b'CONNECT {"verbose":false,"protocol":1}\r\n')
    first, second, rest = raw.say(b"PING\r\n").split(b"\r\n")
    assert first == b"PONG"
    assert b'"connect_info":true' in second
    assert b'"remote_account":"$G"' in second
    assert rest == b""
    assert raw.say(b"PING\r\n") == b"PONG\r\n"
    assert Raw(driver, QUIET).say(b"PING\r\n") == b"PONG\r\n"


def test_a_ping_before_connect_does_not_use_up_the_news_of_the_account(driver: Driver) -> None:
    raw = Raw(driver)
    assert raw.say(b"PING\r\n") == b"PONG\r\n"
    raw.say(b'CONNECT {"verbose":false,"protocol":1}\r\n')
    assert raw.say(b"PING\r\n").startswith(b"PONG\r\nINFO ")


# -- verbose, pedantic, echo -------------------------------------------------------------------


def test_verbose_answers_each_accepted_line_but_no_ping(driver: Driver) -> None:
    raw = Raw(driver, b"CONNECT {}\r\n")
    assert raw.say(b"SUB a 1\r\nUNSUB 1\r\nUNSUB 9\r\nPUB a 0\r\n\r\nPING\r\nPONG\r\n") == (
        b"+OK\r\n" * 4 + b"PONG\r\n"
    )


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.", b"a.*", b"*", b">", b"a.>"])
def test_pedantic_complains_about_a_publish_subject(driver: Driver, subject: bytes) -> None:
    raw = Raw(driver, b'CONNECT {"verbose":false}\r\n')
    assert raw.say(b"PUB %b 1\r\nx\r\n" % subject) == b"-ERR 'Invalid Publish Subject'\r\n"
    assert not raw.closed


def test_what_pedantic_complains_about_is_delivered_all_the_same(driver: Driver) -> None:
    raw = Raw(driver, b'CONNECT {"verbose":false}\r\nSUB a.* 1\r\n')
    assert raw.say(b"PUB a.* 1\r\nx\r\n") == (
        b"-ERR 'Invalid Publish Subject'\r\nMSG a.* 1 1\r\nx\r\n"
    )


def test_a_subject_with_an_empty_token_reaches_nobody(driver: Driver) -> None:
    raw = Raw(driver, QUIET + b"SUB > 1\r\nSUB a.* 2\r\n")
    for subject in (b"a..b", b".a", b"a.", b".", b".."):
        assert raw.say(b"PUB %b 1\r\nx\r\n" % subject) == b"", subject


def test_without_echo_a_client_does_not_hear_itself(driver: Driver) -> None:
    raw = Raw(driver, b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\n')
    other = Raw(driver, QUIET + b"SUB a 1\r\n")
    assert raw.say(b"PUB a 1\r\nx\r\n") == b""
    assert other.take() == b"MSG a 1 1\r\nx\r\n"
    other.say(b"PUB a 1\r\ny\r\n")
    assert raw.take() == b"MSG a 1 1\r\ny\r\n"


def test_without_echo_a_queue_passes_over_the_publisher(driver: Driver) -> None:
    raw = Raw(driver, b'CONNECT {"verbose":false,"echo":false}\r\nSUB a q 1\r\n')
    other = Raw(driver, QUIET + b"SUB a q 1\r\n")
    for _ in range(20):
        assert raw.say(b"PUB a 1\r\nx\r\n") == b""
    assert other.take() == b"MSG a 1 1\r\nx\r\n" * 20


# -- SUB and UNSUB -----------------------------------------------------------------------------


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.", b"a.>.b", b">.a", b".", b".."])
def test_a_malformed_subscription_is_refused(driver: Driver, subject: bytes) -> None:
    raw = Raw(driver, QUIET)
    assert raw.say(b"SUB %b 1\r\n" % subject) == b"-ERR 'Invalid Subject'\r\n"
    assert not raw.closed


@pytest.mark.parametrize(
    "subject", [b"foo*", b"a.*b", b">a", b"\xff\xfe", b"a\x00b", "ü.é".encode()]
)
def test_odd_tokens_are_literals(driver: Driver, subject: bytes) -> None:
    raw = Raw(driver, QUIET)
    assert raw.say(b"SUB %b 1\r\nPUB %b 1\r\nx\r\n" % (subject, subject)) == (
        b"MSG %b 1 1\r\nx\r\n" % subject
    )


def test_the_first_subscription_of_a_sid_stays(driver: Driver) -> None:
    raw = Raw(driver, b"CONNECT {}\r\n")
    assert raw.say(b"SUB a 1\r\nSUB b 1\r\nSUB b..c 1\r\n") == b"+OK\r\n" * 3
    assert raw.say(b"PUB b 1\r\nx\r\nPUB a 1\r\ny\r\n") == b"+OK\r\n+OK\r\nMSG a 1 1\r\ny\r\n"


def test_each_matching_subscription_gets_a_copy(driver: Driver) -> None:
    raw = Raw(driver, QUIET + b"SUB a 1\r\nSUB * 2\r\nSUB > 3\r\nSUB a 4\r\nSUB b 5\r\n")
    got = raw.say(b"PUB a 1\r\nx\r\n").split(b"x\r\n")
    assert sorted(got) == [b"", *(b"MSG a %d 1\r\n" % sid for sid in (1, 2, 3, 4))]


@pytest.mark.parametrize("most", [b"", b" 0", b" x", b" -1"])
def test_unsub_without_a_number_ends_at_once(driver: Driver, most: bytes) -> None:
    raw = Raw(driver, QUIET + b"SUB a 1\r\n")
    assert raw.say(b"UNSUB 1%b\r\nPUB a 1\r\nx\r\n" % most) == b""
    assert raw.session.subscriptions == {}


def test_auto_unsubscribe_counts_from_the_subscription_on(driver: Driver) -> None:
    raw = Raw(driver, QUIET + b"SUB a 1\r\n")
    got = raw.say(b"PUB a 1\r\n1\r\nUNSUB 1 2\r\nPUB a 1\r\n2\r\nPUB a 1\r\n3\r\n")
    assert got == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\n"
    assert raw.session.subscriptions == {}


def test_auto_unsubscribe_of_what_was_delivered_already_ends_at_once(driver: Driver) -> None:
    raw = Raw(driver, QUIET + b"SUB a 1\r\nPUB a 1\r\n1\r\nPUB a 1\r\n2\r\n")
    assert raw.say(b"UNSUB 1 1\r\nPUB a 1\r\n3\r\n") == b""


def test_an_old_style_request_gets_one_answer(driver: Driver) -> None:
    service = Raw(driver, QUIET + b"SUB help 1\r\n")
    raw = Raw(driver, QUIET + b"SUB in.1 1\r\nUNSUB 1 1\r\nPUB help in.1 1\r\n?\r\n")
    assert service.take() == b"MSG help 1 in.1 1\r\n?\r\n"
    service.say(b"PUB in.1 1\r\n!\r\nPUB in.1 1\r\n!\r\n")
    assert raw.take() == b"MSG in.1 1 1\r\n!\r\n"


def test_a_queue_group_gives_each_message_to_one_member_and_all_members_a_share(
    driver: Driver,
) -> None:
    members = [Raw(driver, QUIET + b"SUB a q 1\r\n") for _ in range(3)]
    others = Raw(driver, QUIET + b"SUB a r 1\r\n")
    plain = Raw(driver, QUIET + b"SUB a 1\r\n")
    Raw(driver, QUIET + b"PUB a 1\r\nx\r\n" * 300)
    shares = [member.take().count(b"MSG") for member in members]
    assert sum(shares) == 300
    assert all(60 < share < 140 for share in shares)
    assert others.take().count(b"MSG") == 300
    assert plain.take().count(b"MSG") == 300


def test_the_servers_own_queue_name_is_refused(driver: Driver) -> None:
    assert Raw(driver, QUIET).say(b"SUB a _sys_ 1\r\n") == (
        b'-ERR \'Permissions Violation for Subscription to "a" using queue "_sys_"\'\r\n'
    )


def test_order_is_kept_from_one_publisher_to_one_subscriber(driver: Driver) -> None:
    raw = Raw(driver, QUIET + b"SUB a.* 1\r\n")
    Raw(driver, QUIET + b"".join(b"PUB a.%d 1\r\nx\r\n" % (i % 7) for i in range(50)))
    subjects = [line.split()[1] for line in raw.take().split(b"\r\n") if line.startswith(b"MSG")]
    assert subjects == [b"a.%d" % (i % 7) for i in range(50)]


# -- headers and statuses ----------------------------------------------------------------------


def test_headers_reach_who_asked_for_them_and_are_stripped_for_others(driver: Driver) -> None:
    modern = Raw(driver, MODERN + b"SUB a 1\r\n")
    old = Raw(driver, QUIET + b"SUB a 1\r\n")
    modern.say(b"HPUB a r 18 19\r\n%bx\r\n" % HEADER)
    old.take()
    Raw(driver, MODERN + b"HPUB a 18 19\r\n%bx\r\n" % HEADER)
    assert modern.take() == b"HMSG a 1 18 19\r\n%bx\r\n" % HEADER
    assert old.take() == b"MSG a 1 1\r\nx\r\n"


def test_a_header_block_is_relayed_as_it_is(driver: Driver) -> None:
    raw = Raw(driver, MODERN + b"SUB a 1\r\n")
    assert raw.say(b"HPUB a 4 6\r\nabcdxx\r\n") == b"HMSG a 1 4 6\r\nabcdxx\r\n"
    assert raw.say(b"HPUB a 0 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"


def test_headers_from_a_client_that_did_not_announce_them_close_without_a_word(
    driver: Driver,
) -> None:
    raw = Raw(driver, QUIET)
    assert raw.say(b"HPUB a 18 19\r\n%bx\r\n" % HEADER) == b""
    assert raw.closed
    assert raw.reason == "Message Header Violation"


def test_nobody_answers_says_503_with_the_subject_that_was_asked(driver: Driver) -> None:
    raw = Raw(driver, MODERN + b"SUB in.* 7\r\n")
    assert raw.say(b"PUB help in.1 1\r\n?\r\n") == (
        b"HMSG in.1 7 36 36\r\nNATS/1.0 503\r\nNats-Subject: help\r\n\r\n\r\n"
    )


def test_503_does_not_count_as_a_delivery(driver: Driver) -> None:
    raw = Raw(driver, MODERN + b"SUB r 1\r\nUNSUB 1 1\r\n")
    status = b"HMSG r 1 33 33\r\nNATS/1.0 503\r\nNats-Subject: a\r\n\r\n\r\n"
    assert raw.say(b"PUB a r 0\r\n\r\n" * 2) == status * 2
    assert raw.say(b"PUB r 1\r\nx\r\n" * 2) == b"MSG r 1 1\r\nx\r\n"


@pytest.mark.parametrize("opening", [QUIET + b"SUB r 1\r\n", MODERN + b"SUB r q 1\r\n", MODERN])
def test_503_goes_only_to_a_plain_subscription_of_one_that_asked_for_it(
    driver: Driver, opening: bytes
) -> None:
    Raw(driver, MODERN + b"SUB r 1\r\n")
    assert Raw(driver, opening).say(b"PUB a r 0\r\n\r\n") == b""


def test_a_message_that_only_its_own_publisher_would_hear_was_heard_by_nobody(
    driver: Driver,
) -> None:
    options = b'{"verbose":false,"echo":false,"headers":true,"no_responders":true}'
    raw = Raw(driver, b"CONNECT %b\r\nSUB a 1\r\nSUB r 2\r\n" % options)
    assert raw.say(b"PUB a r 0\r\n\r\n").startswith(b"HMSG r 2 33 33\r\nNATS/1.0 503\r\n")


# -- subjects that are the server's ------------------------------------------------------------


@pytest.mark.parametrize("subject", [b"$NRG.x", b"_GR_.x"])
def test_reserved_subjects_can_not_be_published_to(driver: Driver, subject: bytes) -> None:
    raw = Raw(driver, b"CONNECT {}\r\nSUB > 1\r\n")
    assert raw.say(b"PUB %b 0\r\n\r\n" % subject) == (
        b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject
    )
    assert not raw.closed


@pytest.mark.parametrize("subject", [b"$NRG", b"$NRGx", b"_GR_x", b"_R_.x", b"$SYS.x", b"$JSC.x"])
def test_subjects_that_only_look_reserved_are_ordinary(driver: Driver, subject: bytes) -> None:
    raw = Raw(driver, QUIET + b"SUB > 1\r\n")
    assert raw.say(b"PUB %b 1\r\nx\r\n" % subject) == b"MSG %b 1 1\r\nx\r\n" % subject


@pytest.mark.parametrize("reply", [b"_R_.x", b"$JS.ACK.x", b"_GR_.x"])
def test_reserved_replies_are_refused(driver: Driver, reply: bytes) -> None:
    raw = Raw(driver, QUIET + b"SUB > 1\r\n")
    assert raw.say(b"PUB a %b 0\r\n\r\n" % reply) == (
        b"-ERR 'Permissions Violation for Publish with Reply of \"%b\"'\r\n" % reply
    )


def test_a_subject_in_an_error_is_quoted(driver: Driver) -> None:
    raw = Raw(driver, QUIET)
    assert raw.say('PUB $NRG."\\\x01ü 0\r\n\r\n'.encode() + b"PUB $NRG.\xff 0\r\n\r\n") == (
        '-ERR \'Permissions Violation for Publish to "$NRG.\\"\\\\\\x01ü"\'\r\n'.encode()
        + b"-ERR 'Permissions Violation for Publish to \"$NRG.\\xff\"'\r\n"
    )


# -- what closes a connection ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "heard", "reason"),
    [
        (b"FOO\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"MSG a 1 1\r\nx\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"PUB a 1\r\nxy\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"PUB a 1\r\nx\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"SUB " + b"x" * 4200, b"maximum control line exceeded", "Maximum Control Line Exceeded"),
        (b"PUB a 1048577\r\n", b"Maximum Payload Violation", "Maximum Message Payload Exceeded"),
        (b"PUB a -1\r\n", b"", "Protocol Violation"),
        (b"PUB a\r\n", b"", "Protocol Violation"),
        (b"PUB a b c d\r\n", b"", "Protocol Violation"),
        (b"HPUB a 19 18\r\n", b"", "Protocol Violation"),
        (b"SUB a\r\n", b"", "Protocol Violation"),
        (b"SUB a b c d\r\n", b"", "Protocol Violation"),
        (b"UNSUB\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"UNSUB 1 2 3\r\n", b"", "Protocol Violation"),
        (b"INFO x\r\n", b"", "Protocol Violation"),
        (b"-ERR 'x'\r\n", b"", "Parse Error"),
    ],
)
def test_a_breach_of_protocol_is_told_or_not_and_closes(
    driver: Driver, said: bytes, heard: bytes, reason: str
) -> None:
    raw = Raw(driver, MODERN)
    assert raw.say(said) == (b"-ERR '%b'\r\n" % heard if heard else b"")
    assert raw.closed
    assert raw.reason == reason
    assert raw.session.cid not in driver.engine.sessions


@pytest.mark.parametrize("said", [b"+OK\r\n", b"INFO {}\r\n", b"PONG\r\n"])
def test_what_only_a_server_says_is_ignored(driver: Driver, said: bytes) -> None:
    assert Raw(driver, QUIET).say(said + b"PING\r\n") == b"PONG\r\n"


def test_what_was_said_before_the_breach_is_done(driver: Driver) -> None:
    other = Raw(driver, QUIET + b"SUB a 1\r\n")
    Raw(driver, QUIET + b"PUB a 1\r\nx\r\nFOO\r\nPUB a 1\r\ny\r\n")
    assert other.take() == b"MSG a 1 1\r\nx\r\n"


def test_a_frame_may_come_in_pieces(driver: Driver) -> None:
    raw = Raw(driver)
    for piece in (MODERN[:20], MODERN[20:], b"SU", b"B a", b" 1\r", b"\nPU", b"B a 3", b"\r\nxy"):
        assert raw.say(piece) == b""
    assert raw.say(b"z\r") == b""
    assert raw.say(b"\nPING") == b"MSG a 1 3\r\nxyz\r\n"
    assert raw.say(b"\r\n") == b"PONG\r\n"


# -- limits ------------------------------------------------------------------------------------


def test_a_connection_too_many_is_greeted_and_turned_away() -> None:
    driver = Driver(options=EngineOptions(max_connections=2))
    kept = [Raw(driver) for _ in range(2)]
    raw = Raw(driver)
    assert raw.turned_away
    assert raw.after_greeting == b"-ERR 'maximum connections exceeded'\r\n"
    assert raw.closed
    assert kept[0].say(b"PING\r\n") == b"PONG\r\n"
    kept[1].session.gone("Client Closed")
    assert not Raw(driver).turned_away


@pytest.mark.parametrize(("most", "is_open"), [(0, False), (-1, True)])
def test_a_limit_of_no_connections_refuses_all_and_minus_one_none(most: int, is_open: bool) -> None:
    driver = Driver(options=EngineOptions(max_connections=most))
    assert Raw(driver).turned_away is not is_open


def test_subscriptions_beyond_the_limit_are_refused_until_one_ends() -> None:
    driver = Driver(options=EngineOptions(max_subscriptions=2))
    raw = Raw(driver, QUIET + b"SUB a 1\r\nSUB b 2\r\n")
    assert raw.say(b"SUB c 3\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert raw.say(b"UNSUB 1\r\nSUB c 3\r\nPUB c 1\r\nx\r\n") == b"MSG c 3 1\r\nx\r\n"


def test_a_subscription_with_too_many_tokens_is_refused() -> None:
    driver = Driver(options=EngineOptions(max_sub_tokens=2))
    assert Raw(driver, QUIET).say(b"SUB a.b 1\r\nSUB a.b.c 2\r\n") == (
        b"-ERR 'Permissions Violation for Subscription to \"a.b.c\", too many tokens'\r\n"
    )


def test_the_payload_limit_counts_headers_and_body() -> None:
    driver = Driver(options=EngineOptions(max_payload=20))
    raw = Raw(driver, MODERN + b"SUB a 1\r\n")
    assert raw.info["max_payload"] == 20
    assert raw.say(b"HPUB a 18 20\r\n%bxx\r\n" % HEADER) != b""
    assert raw.say(b"HPUB a 18 21\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"


def test_a_server_without_headers_says_so_and_takes_none() -> None:
    driver = Driver(options=EngineOptions(no_header_support=True))
    raw = Raw(driver, b'CONNECT {"verbose":false,"headers":true}\r\n')
    assert raw.info["headers"] is False
    assert raw.say(b"HPUB a 18 19\r\n") == b""
    assert raw.say(HEADER + b"x\r\n") == b""
    assert raw.closed


def test_a_slow_consumer_is_cut_off_without_a_word_and_without_harm_to_others() -> None:
    driver = Driver(options=EngineOptions(max_pending=1000))
    slow = Raw(driver, QUIET + b"SUB a 1\r\n")
    fine = Raw(driver, QUIET + b"SUB a 1\r\n")
    slow.transport.backlog = 1001
    Raw(driver, QUIET + b"PUB a 1\r\nx\r\n")
    assert slow.closed
    assert slow.reason == "Slow Consumer (Pending Bytes)"
    assert b"-ERR" not in slow.take()
    assert driver.engine.slow_consumers == 1
    assert fine.take() == b"MSG a 1 1\r\nx\r\n"
    assert len(driver.engine.default_account.trie.match(b"a")) == 1


# -- liveness ----------------------------------------------------------------------------------


def test_a_silent_client_is_pinged_and_then_called_stale() -> None:
    options = EngineOptions(ping_interval=10 * SECOND, ping_max=2)
    driver = Driver(options=options)
    raw = Raw(driver, QUIET)
    driver.advance(3 * SECOND)
    assert raw.take() == b"PING\r\n"
    driver.advance(10 * SECOND)
    assert raw.take() == b"PING\r\n"
    driver.advance(10 * SECOND)
    assert raw.take() == b"-ERR 'Stale Connection'\r\n"
    assert raw.closed
    assert driver.engine.stale_connections == 1


def test_a_client_that_answers_pings_stays_and_its_round_trip_is_known() -> None:
    driver = Driver(options=EngineOptions(ping_interval=10 * SECOND, ping_max=2))
    raw = Raw(driver, QUIET)
    driver.advance(3 * SECOND)
    raw.take()
    raw.say(b"PONG\r\n")
    assert raw.session.rtt > 0
    for _ in range(20):
        driver.advance(5 * SECOND)
        if raw.take() == b"PING\r\n":
            raw.say(b"PONG\r\n")
    assert not raw.closed


def test_a_busy_client_is_not_pinged_once_its_round_trip_is_known() -> None:
    driver = Driver(options=EngineOptions(ping_interval=10 * SECOND, ping_max=2))
    raw = Raw(driver, QUIET)
    driver.advance(3 * SECOND)
    raw.say(b"PONG\r\n")
    raw.take()
    for _ in range(20):
        driver.advance(5 * SECOND)
        raw.say(b"PUB a 0\r\n\r\n")
    assert raw.take() == b""


def test_an_idle_connection_costs_one_timer_and_no_turns(driver: Driver) -> None:
    raw = Raw(driver, QUIET)
    driver.advance(3 * SECOND)
    raw.say(b"PONG\r\n")
    begin = driver.clock.now
    assert driver.engine.timers.next_at() - begin > 60 * SECOND
    assert not driver.engine.rounds.finish_turn()


def test_lame_duck_is_told_to_clients_that_understand_it(driver: Driver) -> None:
    modern = Raw(driver, b'CONNECT {"verbose":false,"protocol":1}\r\n')
    old = Raw(driver, QUIET)
    driver.engine.start_lame_duck()
    driver.finish()
    assert b'"ldm":true' in modern.take()
    assert old.take() == b""


def test_a_closed_connection_is_remembered_with_its_reason(driver: Driver) -> None:
    raw = Raw(driver, QUIET + b"SUB a 1\r\n")
    raw.say(b"FOO\r\n")
    closed = driver.engine.closed_sessions[-1]
    assert closed.cid == raw.session.cid
    assert closed.reason == "Protocol Violation"
    assert driver.engine.default_account.trie.match(b"a") == []


class Undecided:
    """An authenticator that decides when a test says so."""

    def __init__(self) -> None:
        self.done: Callable[[User | None], None] = lambda found: None

    def anonymous(self) -> User | None:
        return None

    def authenticate(self, session: ClientSession, done: Callable[[User | None], None]) -> None:
        self.done = done


@pytest.fixture
def undecided() -> Undecided:
    return Undecided()


@pytest.fixture
def stranger(undecided: Undecided) -> Raw:
    options = EngineOptions(auth_required=True)
    raw = Raw(Driver(options=options, authenticator=undecided))
    assert raw.say(QUIET + b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b""
    return raw


def test_nothing_is_read_until_it_is_decided_who_a_client_is(
    stranger: Raw, undecided: Undecided
) -> None:
    assert not stranger.transport.is_read
    assert stranger.session.subscriptions == {}
    undecided.done(user("somebody"))
    stranger.driver.finish()
    assert stranger.take() == b"MSG a 1 1\r\nx\r\n"
    assert stranger.transport.is_read


def test_who_is_refused_late_is_not_acted_for(stranger: Raw, undecided: Undecided) -> None:
    undecided.done(None)
    stranger.driver.finish()
    assert stranger.take() == b"-ERR 'Authorization Violation'\r\n"
    assert stranger.closed
    assert stranger.session.in_msgs == 0


def test_who_waits_too_long_for_a_decision_times_out(stranger: Raw, undecided: Undecided) -> None:
    stranger.driver.advance(2 * SECOND)
    assert stranger.take() == b"-ERR 'Authentication Timeout'\r\n"
    assert stranger.closed
    undecided.done(user("somebody"))
    assert stranger.session.subscriptions == {}
