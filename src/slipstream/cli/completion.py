"""`slipstream completion`: scripts for bash, zsh and fish, and what they ask.

The scripts call ``slipstream __complete <words so far>``, which prints what may come next:
commands, the commands of a group, options. Nothing is asked of a server.
"""

from typing import Annotated, Any

import typer

from slipstream.cli.global_options import OPTIONS, UsageError
from slipstream.cli.output import say
from slipstream.cli.session import new_app

app = new_app(group=False)

SCRIPTS = {
    "bash": """\
_slipstream() {
    local found
    found=$(slipstream __complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)
    COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _slipstream slipstream""",
    "zsh": """\
#compdef slipstream
_slipstream() {
    compadd -- $(slipstream __complete "${words[@]:1:CURRENT-2}" 2>/dev/null)
}
compdef _slipstream slipstream""",
    "fish": """\
complete -c slipstream -f -a '(slipstream __complete (commandline -opc)[2..-1] 2>/dev/null)'""",
}


@app.command("completion")
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish")],
) -> None:
    """Print the script that lets a shell complete `slipstream`; source it from its start file."""
    if shell not in SCRIPTS:
        raise UsageError(f'no completion for "{shell}"; there is {", ".join(SCRIPTS)}')
    say(SCRIPTS[shell])


def complete(words: list[str]) -> int:
    """Print what may follow `words`, one a line; exit status 0."""
    from slipstream.cli.main import COMMANDS

    commands = [word for word in words if not word.startswith("-")]
    if not commands:
        found = list(COMMANDS)
    elif commands[0] in COMMANDS and commands[0] != "serve":
        found = _of_command(commands)
    else:
        found = []
    found += [name for option in OPTIONS for name in option.names if name.startswith("--")]
    say("\n".join(found))
    return 0


def _of_command(words: list[str]) -> list[str]:
    from slipstream.cli.main import load

    command: Any = typer.main.get_command(load(words[0]))
    for word in words[1:]:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    found = [name for name, one in getattr(command, "commands", {}).items() if not one.hidden]
    for parameter in command.params:
        found += [name for name in getattr(parameter, "opts", []) if name.startswith("--")]
    return found
