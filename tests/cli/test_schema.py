"""`slipstream schema`: schemas are registered, looked at and checked."""

import json
from pathlib import Path

from tests.cli.conftest import Cli

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
NOTE = {"name": "note", "type": "string", "default": ""}
SECOND = {**FIRST, "fields": [*FIRST["fields"], NOTE]}


def test_schemas_have_versions_and_have_to_be_compatible(cli: Cli, tmp_path: Path) -> None:
    file, other = tmp_path / "order.avsc", tmp_path / "text"
    bucket = ("--bucket", "CLISCHEMAS")
    file.write_text(json.dumps(FIRST))
    assert "slipstream schema add" in cli("schema", "ls", *bucket, status=1).err
    assert cli("schema", "add", "orders", str(file), *bucket).out == (
        "Version 1 of orders has id 1\n"
    )
    file.write_text(json.dumps(SECOND))
    assert "can become" in cli("schema", "check", "orders", str(file), *bucket).out
    added = json.loads(cli("schema", "add", "orders", str(file), *bucket, "--json").out)
    assert added == {"subject": "orders", "version": 2, "id": 2}
    file.write_text(json.dumps({**FIRST, "fields": [{**NOTE, "type": "int", "default": 0}]}))
    for verb in ("check", "add"):
        refused = cli("schema", verb, "orders", str(file), *bucket, status=1)
        assert ".note is int and was string" in refused.err
    assert json.loads(cli("schema", "get", "orders", *bucket).out) == SECOND
    old = json.loads(cli("schema", "get", "orders", "--version", "1", *bucket, "--json").out)
    assert (old["id"], json.loads(old["schema"])) == (1, FIRST)
    assert (
        "versions 1 to 2" in cli("schema", "get", "orders", "--version", "3", *bucket, status=1).err
    )
    other.write_text("{}")
    assert "--type" in cli("schema", "add", "orders", str(other), *bucket, status=2).err
    (listed,) = json.loads(cli("schema", "ls", *bucket, "--json").out)
    assert listed == {
        "subject": "orders",
        "type": "AVRO",
        "version": 2,
        "id": 2,
        "compatibility": "BACKWARD",
    }
    assert "BACKWARD" in cli("schema", "ls", *bucket).out
    cli("kv", "rm", "CLISCHEMAS", "--force")
