"""Buckets and object stores in the console."""

import json
from typing import Any

import pytest

from slipstream.client.kv.errors import KeyNotFoundError
from slipstream.client.object_store.errors import ObjectNotFoundError
from slipstream.console.pages.keys import changes_between
from tests.console.conftest import Console, MakeConsole

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def bucket(js: Any, name: str) -> Any:
    """A bucket with a few keys."""
    kv = js.create_key_value(name, history=5, description="settings")
    kv.put("shop.theme", json.dumps({"mode": "light"}))
    kv.put("shop.theme", json.dumps({"mode": "dark"}))
    kv.put("team/lead", HOSTILE)
    kv.put("old", b"x")
    kv.delete("old")
    return kv


def test_buckets_are_listed(console: Console, bucket: Any, name: str) -> None:
    page = console.get("/kv")
    assert f'href="/kv/{name}"' in page
    assert f"KV_{name}" not in console.get("/streams")
    assert f"KV_{name}" in console.get("/streams?buckets=1&q=KV_" + name)


def test_the_keys_of_a_bucket_come_with_their_values(
    console: Console, bucket: Any, name: str
) -> None:
    page = console.get(f"/kv/{name}")
    assert page.index("old") < page.index("shop.theme") < page.index("team/lead")
    assert "&#34;dark&#34;" in page
    assert "deleted" in page
    assert HOSTILE not in page
    assert "shop.theme" not in console.get(f"/kv/{name}?q=lead")
    assert "1 to 1 of 1 keys" in console.get(f"/kv/{name}?q=shop.*")
    assert "No key matches" in console.get(f"/kv/{name}?q=nothing")


def test_a_key_shows_its_history_with_what_changed(
    console: Console, bucket: Any, name: str
) -> None:
    page = console.get(f"/kv/{name}/key?key=shop.theme")
    assert '<span class="del">  &#34;mode&#34;: &#34;light&#34;</span>' in page
    assert '<span class="add">  &#34;mode&#34;: &#34;dark&#34;</span>' in page
    assert HOSTILE not in console.get(f"/kv/{name}/key?key=team/lead")
    console.get(f"/kv/{name}/key?key=nothing", status=404)


def test_a_diff_has_lines_that_came_went_and_stayed() -> None:
    found = changes_between("a\nb\nc", "a\nB\nc")
    assert found == [("", "a"), ("del", "b"), ("add", "B"), ("", "c")]


def test_an_edit_of_a_key_that_was_changed_since_is_refused(
    console: Console, bucket: Any, name: str
) -> None:
    address = f"/kv/{name}/put"
    revision = str(bucket.get("shop.theme").revision)
    console.post(address, key="shop.theme", value="one", revision=revision)
    assert bucket.get("shop.theme").data == b"one"
    said = console.post(address, status=400, key="shop.theme", value="two", revision=revision)
    assert "revision" in said
    assert bucket.get("shop.theme").data == b"one"


def test_a_new_key_does_not_replace_one(console: Console, bucket: Any, name: str) -> None:
    address = f"/kv/{name}/put"
    assert console.post(address, key="a/b", value="new") == f"/kv/{name}/key?key=a%2Fb"
    assert bucket.get("a/b").data == b"new"
    console.post(address, status=400, key="shop.theme", value="new")
    console.post(address, status=400, key="", value="new")


def test_deleting_a_key_wants_it_typed(console: Console, bucket: Any, name: str) -> None:
    address = f"/kv/{name}/delete?key=shop.theme"
    console.post(address, status=400, confirm="shop")
    console.post(address, confirm="shop.theme")
    with pytest.raises(KeyNotFoundError):
        bucket.get("shop.theme")


def test_masked_values_are_not_shown_nor_edited(
    url: str, make_console: MakeConsole, js: Any, name: str
) -> None:
    console = make_console(url, mask_fields=("pin",))
    kv = js.create_key_value(name, history=3)
    for pin in (4711, 4712):
        kv.put("card", json.dumps({"pin": pin, "name": "Ada"}))
    for address in (f"/kv/{name}", f"/kv/{name}/key?key=card"):
        page = console.get(address)
        assert "471" not in page
        assert "Ada" in page
    assert "Store</button>" not in page


def test_objects_are_uploaded_downloaded_and_deleted(console: Console, js: Any, name: str) -> None:
    store = js.create_object_store(name)
    assert "No objects yet" in console.get(f"/objects/{name}")
    data = bytes(range(256)) * 1500
    console.post(f"/objects/{name}/put", files={"file": (HOSTILE, data)})
    assert store.get(HOSTILE) == data
    page = console.get(f"/objects/{name}?q={HOSTILE}")
    assert HOSTILE not in page
    assert "Delete the object" in page
    answer = console.client.get(f"/objects/{name}/get", params={"name": HOSTILE})
    assert answer.content == data
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    address = f"/objects/{name}/delete?name=%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    console.post(address, status=400, confirm="no")
    console.post(address, confirm=HOSTILE)
    with pytest.raises(ObjectNotFoundError):
        store.info(HOSTILE)


def test_an_upload_without_a_file_is_refused(console: Console, js: Any, name: str) -> None:
    js.create_object_store(name)
    assert "Choose a file" in console.post(f"/objects/{name}/put", status=400, name="x")
    console.get(f"/objects/{name}/get?name=nothing", status=404)
