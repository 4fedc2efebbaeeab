"""`slipstream pipeline table`, as a person or a program runs it."""

import json
from pathlib import Path

import pytest

from slipstream.tables import TableOptions, stream_table
from slipstream.tables.iceberg import open_catalog
from tests.cli.conftest import Cli


def numbers(folder: Path, table: str) -> list[int]:
    """The column n of a table."""
    rows = open_catalog(str(folder)).load_table(table).scan().to_arrow()
    return sorted(rows["n"].to_pylist())


def test_a_stream_is_written_and_the_next_run_goes_on(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "T", "--subjects", "t.>", "--defaults")
    cli("pub", "t.a", '{"n": {{Count}}}', "--count", "3", "--jetstream")
    cli("pub", "t.a", "not JSON", "--jetstream")
    folder = tmp_path / "tables"
    said = cli("pipeline", "table", "T", "--to", str(folder)).out
    assert said == (
        "Table streams.t has stream T up to sequence 4: 3 rows added, 1 messages in "
        "streams.t_rejected\n"
    )
    assert numbers(folder, "streams.t") == [1, 2, 3]
    again = json.loads(cli("pipeline", "table", "T", "--to", str(folder), "--json").out)
    assert (again["rows"], again["sequence"], again["table"]) == (0, 4, "streams.t")
    cli("pub", "t.a", '{"n": 4}', "--jetstream")
    lines = cli("pipeline", "table", "T", "--to", str(folder), "--json").out.splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [5, 5]  # a commit, and the end
    cli("stream", "rm", "T", "--force")


def test_options_of_the_line_reach_the_writer(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "U", "--subjects", "u.>", "--defaults")
    cli("pub", "u.a", '{"n": 1, "at": "2001-02-03T04:05:06Z"}', "--jetstream")
    cli("pub", "u.a", '{"n": 2.5}', "--jetstream")
    line = "--to w --table mine.u --column n:long --new-fields ignore --time at --late 1h"
    more = "--partition month --archive --headers --commit-every 200ms --commit-size 1MB"
    said = cli("pipeline", "table", "U", *line.split(), *more.split()).out
    assert "0 rows added, 2 messages in mine.u_rejected" in said
    assert "2 messages were removed from the stream" in said
    rejected = open_catalog(str(tmp_path / "w")).load_table("mine.u_rejected").scan().to_arrow()
    assert [reason.partition(" ")[0] for reason in rejected["reason"].to_pylist()] == [
        "late:",
        "Expected",
    ]
    cli("stream", "rm", "U", "--force")


def test_a_writer_that_follows_says_each_commit_and_ends_with_ctrl_c(
    cli: Cli, tmp_path: Path
) -> None:
    cli("stream", "add", "V", "--subjects", "v.>", "--defaults")
    cli("pub", "v.a", '{"n": 1}', "--jetstream")
    writer = cli.start("pipeline", "table", "V", "--to", str(tmp_path / "w"), "--follow", "--json")
    assert writer.stdout is not None
    assert json.loads(writer.stdout.readline())["sequence"] == 1
    cli("pub", "v.a", '{"n": 2}', "--jetstream")
    assert json.loads(writer.stdout.readline())["sequence"] == 2
    writer.send_signal(2)
    assert writer.wait(20) == 130
    writer.communicate()
    assert numbers(tmp_path / "w", "streams.v") == [1, 2]
    cli("stream", "rm", "V", "--force")


def test_what_is_wrong_is_said_in_a_line(cli: Cli, tmp_path: Path) -> None:
    cases = [
        (("NOPE", "--to", "w"), 1, "stream not found"),
        (("T", "--to", "s3://bucket"), 1, "it is a folder, the URL of a REST catalog"),
        (("T", "--to", "w", "--column", "n"), 1, "write it as NAME:VALUE"),
        (("T", "--to", "w", "--column", "n:number"), 1, "no column type 'number'"),
        (("T", "--to", "w", "--partition", "week"), 2, "none of hour, day, month, none"),
        (("T", "--to", "w", "--archive", "--subject", "a"), 1, "takes no subjects"),
    ]
    for words, status, text in cases:
        done = cli("pipeline", "table", *words, status=status)
        assert text in done.err, done.err
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_may_have_another_format(cli: Cli, tmp_path: Path, kind: str) -> None:
    cli("stream", "add", "F", "--subjects", "f.>", "--defaults")
    cli("pub", "f.a", '{"n": {{Count}}}', "--count", "3", "--jetstream")
    for added in (3, 0):
        said = cli("pipeline", "table", "F", "--to", "w", "--format", kind).out
        assert f"up to sequence 3: {added} rows added, 0 messages" in said
    rows, _ = stream_table(str(tmp_path / "w"), "f", "F", TableOptions(format=kind)).read()
    assert rows.columns()["n"].type == "int64"
    cli("stream", "rm", "F", "--force")


def test_columns_come_from_the_schema_in_a_registry_or_a_file(cli: Cli, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
    (tmp_path / "order.json").write_text(json.dumps(schema))
    cli("stream", "add", "G", "--subjects", "g.>", "--defaults")
    cli("pub", "g.a", '{"n": 1, "more": 2}', "--jetstream")
    cli("pipeline", "table", "G", "--to", "w", "--schema-file", "order.json")
    cli("schema", "add", "orders", "order.json")
    cli("pub", "g.a", '{"n": 2}', "--jetstream")  # without the id of a schema in front
    said = cli("pipeline", "table", "G", "--to", "w", "--schema", "orders").out
    assert "0 rows added, 1 messages in streams.g_rejected" in said
    rows = open_catalog(str(tmp_path / "w")).load_table("streams.g").scan().to_arrow()
    assert rows.column_names == ["_stream", "_subject", "_sequence", "_time", "n", "s"]
    for words, text in (
        (["--body", "avro"], "needs --schema"),
        (["--body", "bytes", "--schema", "orders"], "takes no schema"),
        (["--schema", "a", "--schema-file", "b"], "not both"),
        (["--body", "avro", "--schema-file", "none.avsc"], "No such file"),
    ):
        done = cli("pipeline", "table", "G", "--to", "w", *words, status=2)
        assert text in done.err, done.err
    cli("stream", "rm", "G", "--force")
    cli("kv", "del", "schemas", "--force")
