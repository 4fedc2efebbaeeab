"""Streams in the console: the list, one stream, its subjects, changing and removing it."""

import html
from typing import Any

import pytest

from slipstream.client.jetstream import StreamConfig, StreamInfo, StreamState
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.console.pages.streams import branches_of, changed_config, changes_of, warnings_of
from slipstream.console.visit import FormError
from tests.console.conftest import Console


@pytest.fixture
def stream(js: Any, name: str) -> str:
    """A stream with three messages on two subjects."""
    js.create_stream(name=name, subjects=[f"{name}.>"], description="for tests", max_msgs=100)
    for subject in ("a.one", "a.two", "a.one"):
        js.publish(f"{name}.{subject}", b"body")
    return name


def test_the_list_shows_each_stream_with_its_size(console: Console, stream: str) -> None:
    page = console.get(f"/streams?q={stream}")
    assert f'href="/streams/{stream}"' in page
    assert "for tests" in page
    assert "1 to 1 of 1 streams" in page


def test_a_list_without_a_match_says_so(console: Console, stream: str) -> None:
    assert "No stream matches" in console.get("/streams?q=nothing-is-called-so")


def test_a_stream_shows_its_state_and_its_configuration(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}")
    assert f"{stream}.&gt;" in page
    assert "3" in page
    assert "no gaps" in page


def test_a_stream_that_is_not_there_is_an_error_that_names_a_command(console: Console) -> None:
    page = console.get("/streams/NOPE", status=404)
    assert "stream not found" in page
    assert "<code>slipstream stream ls --all</code>" in page


def test_subjects_are_a_tree_with_counts(console: Console, stream: str) -> None:
    top = console.get(f"/streams/{stream}/branches")
    assert f"/subjects?under={stream}" in top
    leaves = console.get(f"/streams/{stream}/branches?under={stream}.a")
    assert f"/messages?subject={stream}.a.one" in leaves
    assert leaves.index("one") < leaves.index("two")  # those with the most messages first


def test_a_level_of_the_tree_adds_up_what_is_below_it() -> None:
    found = branches_of({"a.b": 2, "a.b.c": 3, "a.d": 1}, "a")
    assert [(one.token, one.subjects, one.messages, one.is_subject) for one in found] == [
        ("b", 2, 5, True),
        ("d", 1, 1, True),
    ]


def form_of(config: StreamConfig, **changes: str) -> dict[str, str]:
    """The fields of the form as the browser sends them."""
    form = {"subjects": "\n".join(config.subjects), "description": config.description}
    form |= {"max_msgs": str(config.max_msgs) if config.max_msgs > 0 else ""}
    return form | {"duplicate_window": "2m0s", "discard": config.discard} | changes


def test_an_edit_is_shown_before_it_is_done(console: Console, js: Any, stream: str) -> None:
    config = js.stream_info(stream).config
    form = form_of(config, max_msgs="2", description="changed")
    page = console.post(f"/streams/{stream}/review", status=200, **form)
    assert "changed" in page
    assert "1 message too many for the new limit" in page
    assert js.stream_info(stream).config.max_msgs == 100
    assert console.post(f"/streams/{stream}/update", **form) == f"/streams/{stream}"
    after = js.stream_info(stream)
    assert (after.config.max_msgs, after.config.description) == (2, "changed")
    assert after.state.messages == 2
    assert f"Stream {stream} was updated: 2 fields." in console.get(f"/streams/{stream}")


def test_an_edit_that_the_server_refuses_is_said(console: Console, stream: str) -> None:
    form = {"subjects": "a..b", "duplicate_window": "2m0s"}
    said = console.post(f"/streams/{stream}/update", status=400, **form)
    assert 'role="alert"' in said


def test_a_field_of_the_form_that_cannot_be_read_is_named() -> None:
    config = StreamConfig(name="S", subjects=["s"])
    with pytest.raises(FormError, match="Age at most"):
        changed_config(config, {"max_age": "soon", "subjects": "s"})


def test_a_form_as_it_came_changes_nothing() -> None:
    config = StreamConfig(name="S", subjects=["s"], max_bytes=1500, max_age=90.5, max_msgs=7)
    form = {"subjects": "s", "max_bytes": "1500", "max_age": "1m30s", "max_msgs": "7"}
    form |= {"discard": "old"}
    assert changes_of(config, changed_config(config, form)) == []


def test_what_an_update_would_remove_is_said() -> None:
    info = StreamInfo(
        config=StreamConfig(name="S", subjects=["s", "t"]),
        state=StreamState(messages=10, bytes=4096),
    )
    after = info.config.replace(max_msgs=4, max_bytes=1024, max_age=60.0, subjects=["s"])
    said = " ".join(warnings_of(info, after))
    for text in ("6 messages", "3.0 KiB", "older than 1m0s", "published on t"):
        assert text in said


def test_a_purge_wants_the_name_typed(console: Console, js: Any, stream: str) -> None:
    address = f"/streams/{stream}/purge"
    said = console.post(address, status=400, confirm="something else")
    assert "nothing was changed" in said
    assert js.stream_info(stream).state.messages == 3
    console.post(address, confirm=stream, subject=f"{stream}.a.one")
    assert js.stream_info(stream).state.messages == 1


def test_a_purge_can_keep_the_newest(console: Console, js: Any, stream: str) -> None:
    console.post(f"/streams/{stream}/purge", confirm=stream, keep="2")
    assert js.stream_info(stream).state.first_seq == 2


def test_deleting_a_stream_wants_its_name_typed(console: Console, js: Any, stream: str) -> None:
    console.post(f"/streams/{stream}/delete", status=400, confirm="")
    assert console.post(f"/streams/{stream}/delete", confirm=stream) == "/streams"
    with pytest.raises(StreamNotFoundError):
        js.stream_info(stream)


def test_a_name_that_is_markup_is_shown_as_text(console: Console, js: Any, name: str) -> None:
    hostile = f"<img{name}"
    js.create_stream(name=hostile, subjects=[f"{name}.x"], description="<img src=x>")
    for address in ("/streams", f"/streams/%3Cimg{name}", "/"):
        page = console.get(address)
        assert f"<img{name}" not in page
        assert "<img src=x>" not in page
    assert html.escape(hostile) in console.get("/streams")
    js.delete_stream(hostile)
