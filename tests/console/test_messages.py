"""Messages in the console: pages, filters, views, publishing, export."""

import io
import json
from typing import Any

import fastavro
import msgspec
import pytest

from slipstream.client.jetstream.errors import MessageNotFoundError
from tests.console.conftest import Console, MakeConsole

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(params=[True, False], ids=["direct", "no-direct"])
def stream(request: pytest.FixtureRequest, js: Any, name: str) -> str:
    """A stream with 120 orders, with direct gets and without."""
    js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=request.param)
    for number in range(1, 121):
        region = "eu" if number % 3 else "us"
        body = {"order": {"id": number, "tags": [region]}}
        js.publish(f"{name}.{region}", json.dumps(body), headers={"Region": region})
    return name


def sequences(page: str) -> list[int]:
    """The sequences that a page lists, from top to bottom."""
    return [int(part.partition("<")[0]) for part in page.split('<span class="seq">')[1:]]


def test_the_newest_messages_come_first_and_older_ones_follow(
    console: Console, stream: str
) -> None:
    first = console.get(f"/streams/{stream}/messages")
    assert sequences(first) == list(range(120, 70, -1))
    older = console.get(f"/streams/{stream}/messages?start=71&go=back")
    assert sequences(older) == list(range(70, 20, -1))
    assert "?start=21&amp;go=back" in older


def test_messages_begin_where_they_are_asked_for(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}/messages?start=100")
    assert sequences(page) == list(range(100, 121))
    assert sequences(console.get(f"/streams/{stream}/messages?start=1h")) == list(range(1, 51))


def test_the_slider_stands_where_the_messages_begin(console: Console, stream: str) -> None:
    assert 'value="1000" data-slider' in console.get(f"/streams/{stream}/messages")
    assert 'value="0" data-slider' in console.get(f"/streams/{stream}/messages?start=1")


def test_a_beginning_that_cannot_be_read_is_said(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}/messages?start=someday")
    assert "neither a sequence nor a time" in page


def test_messages_of_a_subject_are_found_behind_many_others(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}/messages?subject={stream}.us")
    assert sequences(page) == list(range(120, 0, -3))


def test_a_filter_looks_at_headers_and_json(console: Console, stream: str) -> None:
    where = "header.Region = us and json.order.id > 100"
    page = console.get(f"/streams/{stream}/messages?where={where}")
    assert sequences(page) == [102, 105, 108, 111, 114, 117, 120]
    found = console.get(f"/streams/{stream}/messages?where=json.order.tags[0] ~ u&start=118")
    assert sequences(found) == [118, 119, 120]


def test_a_filter_that_cannot_be_read_says_how_to_write_one(console: Console, stream: str) -> None:
    assert "write header.NAME" in console.get(f"/streams/{stream}/messages?where=total is big")


def test_a_message_is_shown_with_headers_views_and_code(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}/messages/7", **{"hx-request": "true"})
    assert "<html" not in page
    assert "&#34;id&#34;: 7" in page
    assert "Region" in page
    assert "7b 22 6f 72" in page  # hex
    assert f"slipstream stream get {stream} 7" in page


def test_what_is_in_a_message_stays_text(console: Console, js: Any, name: str) -> None:
    js.create_stream(name=name, subjects=[f"{name}.>"])
    js.publish(f"{name}.{HOSTILE}", HOSTILE, headers={"X": HOSTILE})
    js.publish(f"{name}.b", json.dumps({HOSTILE: HOSTILE}))
    for address in ("messages?", "messages/1?", "messages/2?", "publish?again=1&", "branches?"):
        page = console.get(f"/streams/{name}/{address}under={name}")
        assert HOSTILE not in page
    assert "&lt;script&gt;" in console.get(f"/streams/{name}/messages")


def test_messagepack_and_protobuf_are_readable(console: Console, js: Any, name: str) -> None:
    js.create_stream(name=name, subjects=[name])
    js.publish(name, msgspec.msgpack.encode({"celsius": 21.5}))
    js.publish(name, b"\x08\x96\x01\x12\x07testing\x1a\x02\xff\xfe")
    assert "&#34;celsius&#34;: 21.5" in console.get(f"/streams/{name}/messages/1")
    second = console.get(f"/streams/{name}/messages/2")
    assert "1: 150" in second
    assert "2: &#34;testing&#34;" in second


def test_avro_files_are_readable_and_searched(console: Console, js: Any, name: str) -> None:
    schema = {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "celsius", "type": "double"}, {"name": "at", "type": "string"}],
    }
    js.create_stream(name=name, subjects=[name])
    for celsius in (21.5, 40.25):
        file = io.BytesIO()
        fastavro.writer(file, schema, [{"celsius": celsius, "at": HOSTILE}])
        js.publish(name, file.getvalue())
    js.publish(name, b"\x00\x00\x00\x00\x07\x02\xff")
    first = console.get(f"/streams/{name}/messages/1")
    assert "&#34;celsius&#34;: 21.5" in first
    assert HOSTILE not in first
    assert "The schema is not in the message." in console.get(f"/streams/{name}/messages/3")
    assert sequences(console.get(f"/streams/{name}/messages?where=json.celsius > 30")) == [2]


def test_a_message_is_published_with_its_headers(console: Console, js: Any, stream: str) -> None:
    where = console.post(
        f"/streams/{stream}/publish",
        subject=f"{stream}.new",
        headers="Region: ap\r\nTrace: 1:2",
        body="line\r\nline",
    )
    assert where == f"/streams/{stream}/messages"
    stored = js.stream(stream).get_message(121)
    assert stored.data == b"line\nline"
    assert dict(stored.headers.items()) == {"Region": ["ap"], "Trace": ["1:2"]}
    assert "as message 121" in console.get(where)


def test_a_stored_message_is_offered_for_publishing_again(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}/publish?again=3")
    assert f'value="{stream}.us"' in page
    assert "Region: us" in page


def test_a_message_on_a_subject_of_no_stream_is_refused(console: Console, stream: str) -> None:
    said = console.post(f"/streams/{stream}/publish", status=400, subject="of.no.stream")
    assert "of.no.stream" in said
    console.post(f"/streams/{stream}/publish", status=400, subject="")


def test_deleting_a_message_wants_its_sequence_typed(
    console: Console, js: Any, stream: str
) -> None:
    console.post(f"/streams/{stream}/messages/5/delete", status=400, confirm="6")
    console.post(f"/streams/{stream}/messages/5/delete", confirm="5")
    with pytest.raises(MessageNotFoundError):
        js.stream(stream).get_message(5)
    assert 5 not in sequences(console.get(f"/streams/{stream}/messages?start=1"))


def test_an_export_has_the_messages_that_match(console: Console, stream: str) -> None:
    text = console.get(f"/streams/{stream}/export?where=header.Region = us&start=100")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["sequence"] for line in lines] == [102, 105, 108, 111, 114, 117, 120]
    assert json.loads(lines[0]["data"]) == {"order": {"id": 102, "tags": ["us"]}}
    assert lines[0]["headers"] == {"Region": ["us"]}


def test_masked_fields_and_headers_are_nowhere(
    own_url: str, make_console: MakeConsole, name: str
) -> None:
    import slipstream.sync

    console = make_console(own_url, mask_headers=("X-Auth*",), mask_fields=("ssn", "card.*.pin"))
    body = {"ssn": "078-05-1120", "card": {"visa": {"pin": 4711, "name": "Ada"}}}
    with slipstream.sync.connect(own_url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name], allow_direct=True)
        js.publish(name, json.dumps(body), headers={"X-Auth-Token": "geheim", "Plain": "yes"})
        js.publish(name, msgspec.msgpack.encode(body))
        js.publish(name, json.dumps(body) + "\n" + json.dumps(body))  # lines: no one document
        js.publish(name, "the ssn is 078-05-1120")
    addresses = ["messages", "messages/1", "messages/2", "messages/3", "messages/4", "export"]
    pages = [console.get(f"/streams/{name}/{address}") for address in addresses]
    for page in pages:
        for secret in ("078-05-1120", "4711", "geheim", b"078-05-1120".hex(" ")):
            assert secret not in page
    assert "Ada" in pages[1]
    assert "Plain" in pages[1]
    where = "json.ssn = 078-05-1120"
    assert "No message matches" in console.get(f"/streams/{name}/messages?where={where}")
    assert "masked" in console.get(f"/streams/{name}/publish?again=1", status=400)
