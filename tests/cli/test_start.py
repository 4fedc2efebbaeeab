"""What a command loads to start, and that a line means the same however it is read."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from slipstream.cli.line import command_of
from slipstream.cli.main import COMMANDS, GROUPS, PARTS, innermost
from slipstream.cli.session import new_app
from tests.cli.conftest import SOURCE, Cli

# Half a second and more of processor time, all in all. A line that is right needs none of them.
NOT_FOR_A_COMMAND = {
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "slipstream.engine",
    "slipstream.log",
    "slipstream.server",
    "slipstream.spark",
    "textual",
    "uvloop",
}
NOT_FOR_A_CLIENT = NOT_FOR_A_COMMAND | {"slipstream.cli", "shutil", "typer"}


def _loaded_by(code: str, *, env: dict[str, str] | None = None) -> set[str]:
    asked = f"import sys; had = set(sys.modules)\n{code}\nprint(*set(sys.modules) - had)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; site.main(); {asked}"],
        env={"PYTHONPATH": str(SOURCE), **(env or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words",
    [
        ["stream", "ls"],
        ["stream", "info", "START"],
        ["consumer", "ls", "START"],
        ["pub", "start", "x"],
        ["kv", "ls"],
        ["account", "info"],
    ],
)
def test_a_command_loads_the_client_and_little_else(cli: Cli, words: list[str]) -> None:
    if "START" in words:
        cli("stream", "add", "START", "--subjects", "start", "--defaults", "--storage", "memory")
    loaded = _loaded_by(
        f"from slipstream.cli.main import main; assert main({words!r}) == 0", env=cli.env
    )
    if "START" in words:
        cli("stream", "rm", "START", "--force")
    assert "slipstream.client" in loaded
    assert not loaded & NOT_FOR_A_COMMAND
    commands = {
        f"slipstream.cli.{name}"
        for name in ("kv", "stream.command", "stream.show", "message.publish")
    }
    assert len(loaded & commands) <= 1


def test_a_program_that_uses_the_client_loads_nothing_of_the_command_line() -> None:
    loaded = _loaded_by("import slipstream; slipstream.connect")
    assert not loaded & NOT_FOR_A_CLIENT
    ours = {name for name in loaded if name.startswith("slipstream")}
    assert len(ours) < 60
    assert len(loaded) < 300


def test_the_modules_with_parts_of_a_group_have_what_the_table_says() -> None:
    for name, parts in PARTS.items():
        own = import_module(COMMANDS[name][0]).app
        for module, commands in parts.items():
            app = import_module(module).app
            assert [command.name for command in app.registered_commands] == list(commands)
            assert app is not own


@pytest.mark.parametrize(
    ("words", "path", "left"),
    [
        (["operator", "ls"], "auth operator", ["ls"]),
        (["act", "sk", "add", "keys"], "auth account keys", ["add", "keys"]),
        (["a", "keys"], "auth account keys", []),
        (["--help"], "auth", ["--help"]),
        ([], "auth", []),
    ],
)
def test_groups_inside_groups_are_found_by_all_their_names(
    words: list[str], path: str, left: list[str]
) -> None:
    assert innermost("auth", words) == (path, left)


def test_a_command_of_a_group_inside_a_group_loads_no_other(offline: Cli) -> None:
    loaded = _loaded_by(
        "from slipstream.cli.main import main; assert main(['auth', 'operator', 'ls']) == 0",
        env=offline.env,
    )
    assert not loaded & (NOT_FOR_A_COMMAND | {"cryptography", "slipstream.client"})
    others = {f"slipstream.cli.auth.{name}" for name in ("account", "user", "nkey", "jwt")}
    assert not loaded & others


Seen = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def said() -> tuple[typer.Typer, Seen]:
    """A group with one command that has every kind of parameter, and what it was called with."""
    app, seen = new_app("A group."), Seen()

    @app.command("do")
    def do(
        name: Annotated[str, typer.Argument(metavar="NAME")],
        number: Annotated[int, typer.Argument()] = 7,
        rest: Annotated[list[str], typer.Argument()] = [],  # noqa: B006
        flag: Annotated[bool, typer.Option("--flag", "-f")] = False,
        both: Annotated[bool, typer.Option("--both/--no-both")] = True,
        text: Annotated[str, typer.Option("--text", "-t")] = "",
        maybe: Annotated[str | None, typer.Option("--maybe")] = None,
        count: Annotated[int, typer.Option("--count", min=1)] = 1,
        part: Annotated[float, typer.Option("--part")] = 0.5,
        file: Annotated[Path | None, typer.Option("--file")] = None,
        many: Annotated[list[str], typer.Option("--many", "-m")] = [],  # noqa: B006
        upper: Annotated[Any, typer.Option("--upper", parser=str.upper)] = None,
    ) -> None:
        seen.append(("do", dict(locals())))

    return app, seen


@pytest.mark.parametrize(
    "line",
    [
        "do a",
        "do a 3",
        "do a 3 x y z",
        "do --flag a --no-both",
        "do -f a --both",
        "do a --text=b=c --maybe d",
        "do a --text -x",
        "do a -t b --count 2 --part 0.25",
        "do a --file some/where",
        "do a --many 1 -m 2 --many=3",
        "do a --upper abc",
        "do -- a 4 -x --text",
        "do a --text first --text second",
        "do - 3",
    ],
)
def test_a_line_means_what_typer_takes_it_for(said: tuple[typer.Typer, Seen], line: str) -> None:
    app, seen = said
    found = command_of(app, line.split())
    assert found is not None
    callback, arguments = found
    callback(**arguments)
    typer.main.get_command(app)(line.split(), standalone_mode=False)
    ours, theirs = (call[1] for call in seen)
    ours.pop("seen"), theirs.pop("seen")
    assert ours == theirs


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nope",
        "--help",
        "do",
        "do --help",
        "do a --nope",
        "do a x",
        "do a --count 0",
        "do a --count many",
        "do a --text",
        "do a --flag=yes",
        "do a -tb",
        "do a -t=b",
    ],
)
def test_what_is_not_plain_is_left_to_typer(said: tuple[typer.Typer, Seen], line: str) -> None:
    assert command_of(said[0], line.split()) is None


def test_every_command_can_be_read_without_typer() -> None:
    unread = []
    for name, (module, attribute, _) in COMMANDS.items():
        if name in ("serve", "pipeline"):
            continue
        modules = [(module, attribute), *((part, "app") for part in PARTS.get(name, {}))]
        inside = [groups for path, groups in GROUPS.items() if path.split()[0] == name]
        modules += [(group, "app") for groups in inside for group, _ in groups.values()]
        for place, there in modules:
            app = getattr(import_module(place), there)
            for command in app.registered_commands:
                words = ["1"] * 6
                group = app.registered_callback is not None or len(app.registered_commands) > 1
                lines = [[*([command.name] if group else []), *words[:n]] for n in range(5)]
                if not any(command_of(app, line) for line in lines):
                    unread.append(f"{name} {command.name}")
    assert unread == []


def test_the_name_of_a_command_is_not_its_argument_where_it_is_the_only_one_of_its_module(
    cli: Cli,
) -> None:
    refused = cli("stream", "graph", status=2).err
    assert '"graph"' not in refused
    assert "STREAM" in refused
