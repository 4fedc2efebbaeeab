"""The grammar reads what the NATS format allows, and says where a text breaks it."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import ConfigError
from slipstream.server.config.grammar import parse_file, parse_text
from slipstream.server.config.tree import ParseError, digest


def plain(text: str, **environment: str) -> Any:
    return parse_text(text, "a.conf", environment).plain()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("YES", True),
        ("off", False),
        ("12", 12),
        ("-3", -3),
        ("2k", 2000),
        ("2kb", 2048),
        ("2KiB", 2048),
        ("3G", 3_000_000_000),
        ("1.5", 1.5),
        ("10s", "10s"),
        ("1h30m", "1h30m"),
        ("2m", 2_000_000),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("0.0.0.0:-1", "0.0.0.0:-1"),
        ("-1.2.3", "-1.2.3"),
        ("1.2.3.4-5", "1.2.3.4-5"),
        ("p@ss#w", "p@ss#w"),
        ("3secret", "3secret"),
        ("'a\\b'", "a\\b"),
        (r'"a\tb\x41"', "a\tbA"),
        ('"two\nlines"', "two\nlines"),
        ("(\nraw } text\n)", "\nraw } text\n"),
        ("[1, 2\n3,]", [1, 2, 3]),
        ("{a: 1, b {c = d}}", {"a": 1, "b": {"c": "d"}}),
        ("$2a$11$abc", "$2a$11$abc"),
    ],
)
def test_a_word_means_what_it_is_spelled_like(word: str, value: Any) -> None:
    assert plain(f"key: {word}\n") == {"key": value}


def test_a_time_is_a_time() -> None:
    entry = parse_text("at: 2020-01-02T03:04:05Z").data
    assert isinstance(entry, dict)
    assert entry["at"].value.data == datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("separator", [": ", " = ", " ", ":", "="])
def test_a_key_and_its_value_are_separated_in_several_ways(separator: str) -> None:
    assert plain(f"key{separator}word") == {"key": "word"}


def test_entries_end_with_a_line_a_comma_or_a_semicolon() -> None:
    assert plain("a: 1, b: 2; c: 3\nd: 4 # rest\n# all\n// all\n'e f': 5") == {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": 4,
        "e f": 5,
    }


def test_the_last_of_two_equal_keys_counts() -> None:
    assert plain("a: 1\na: 2") == {"a": 2}


def test_variables_are_looked_for_from_the_inside_out_and_then_in_the_environment() -> None:
    text = "x: outer\nm { y: $x, x: inner, n { z: $x, e: $HOME_OF_NATS } }"
    assert plain(text, HOME_OF_NATS="12345")["m"] == {
        "y": "outer",
        "x": "inner",
        "n": {"z": "inner", "e": 12345},
    }


def test_an_environment_variable_is_read_as_a_value() -> None:
    assert plain("a: $V", V='"a b"') == {"a": "a b"}
    assert plain("a: $V", V="{b: [1, yes]}") == {"a": {"b": [1, True]}}
    with pytest.raises(ParseError, match="in the environment"):
        plain("a: $V", V="a b")
    with pytest.raises(ParseError, match="refers to itself"):
        plain("a: $V", V="$V")


def test_a_quoted_dollar_is_a_dollar() -> None:
    assert plain('a: "$X"') == {"a": "$X"}


def test_an_include_is_merged_where_it_stands_and_found_beside_its_file(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "main.conf").write_text("a: 1\nm { include 'inner/one.conf' }\nb: 2\n")
    (inner / "one.conf").write_text("include two.conf\nc: $d\n")
    (inner / "two.conf").write_text("d: 4\n")
    assert parse_file(str(tmp_path / "main.conf"), {}).plain() == {
        "a": 1,
        "m": {"c": 4, "d": 4},
        "b": 2,
    }


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "main.conf").write_text("include one.conf\n")
    (tmp_path / "one.conf").write_text("a: 1\nb: [1 2]\n")
    with pytest.raises(ParseError) as raised:
        parse_file(str(tmp_path / "main.conf"), {})
    assert raised.value.place.file == str(tmp_path / "one.conf")
    assert raised.value.place.line == 2


def test_a_file_that_includes_itself_comes_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "main.conf").write_text("include main.conf\n")
    with pytest.raises(ParseError, match="files deep"):
        parse_file(str(tmp_path / "main.conf"), {})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: {\n b: 1", "2:6"),
        ("a: [1, 2", "1:9"),
        ('a: "open', "1:4"),
        ("a: 1 b: 2", "1:6"),
        ("}", "1:1"),
        ("a: 1.5M", "1:4"),
        ('a: "\\q"', "1:4"),
        (": 4", "1:1"),
        ("a: (\nno end", "1:4"),
        ("a: " + "[" * 100, "1:68"),
        ("a: 99999999999999999999", "1:4"),
    ],
)
def test_what_breaks_the_grammar_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ParseError) as raised:
        plain(text)
    line = place.partition(":")[0]
    assert str(raised.value).startswith(f"Parse error on line {line}: a.conf:{place}: ")


def test_a_variable_that_is_not_there_is_reported_in_nats_servers_words() -> None:
    with pytest.raises(ParseError) as raised:
        plain("a: 1\n  b: $missing")
    expected = "a.conf:2:6: variable reference for 'missing' on line 2 can not be found: "
    assert str(raised.value).startswith(expected)


def test_the_digest_is_that_of_the_content_not_of_its_formatting() -> None:
    one = parse_text("a: 1, b { c: [x, 'y'] }")
    other = parse_text('# text\nb {\n c = ["x"\n y]\n}\na 1')
    assert digest(one) == digest(other) != digest(parse_text("a: 2"))


@given(st.text(alphabet="ab1$.:=,;{}[]()#/\"'\\ \n\tinclude-", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        parse_text(text, "a.conf", {"a": "1", "b": "$a"})


@pytest.mark.parametrize("blank", ["\v", "\f", "\x1c", "\x85", "\xa0", "\u2003"])
def test_white_space_of_any_kind_separates_entries(blank: str) -> None:
    assert plain(f"{blank}a: 1\n{blank}b {{{blank}c: 2\n{blank}}}\n{blank}") == {
        "a": 1,
        "b": {"c": 2},
    }
