"""`slipstream errors`: JetStream's error codes."""

import re
from collections.abc import Callable
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.session import new_app, wants_json
from slipstream.model.error_codes import ErrorCode

app = new_app("Look up JetStream's error codes.")


SORTS: dict[str, Callable[[ErrorCode], tuple[int, str]]] = {
    "code": lambda code: (code.value, ""),
    "http": lambda code: (code.status, ""),
    "description": lambda code: (0, code.description.lower()),
}
OTHER_SORTS = {"d": "description", "desc": "description", "descr": "description"}


def _entry(code: ErrorCode) -> dict[str, object]:
    return {"err_code": code.value, "code": code.status, "description": code.description}


@app.command("ls")
def ls(
    pattern: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only those with this; a regular expression")
    ] = "",
    sort: Annotated[str, typer.Argument(metavar="SORT", help=", ".join(SORTS))] = "code",
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="The other way round")] = False,
) -> None:
    """List the errors."""
    chosen = SORTS.get(OTHER_SORTS.get(sort, sort))
    if chosen is None:
        raise UsageError(f'errors ls: "{sort}" is none of {", ".join(SORTS)}')
    try:
        wanted = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f'errors ls: "{pattern}" is no regular expression: {error}') from error
    found = [
        code for code in ErrorCode if wanted.search(f"{code} {code.status} {code.description}")
    ]
    found.sort(key=chosen, reverse=reverse)
    if wants_json():
        print_json([_entry(code) for code in found])
        return
    rows = [(str(code), str(code.status), code.description) for code in found]
    table("JetStream errors", ("NATS Code", "HTTP Error Code", "Description"), rows)


@app.command("lookup")
def lookup(
    number: Annotated[
        int, typer.Argument(metavar="CODE", help=f"Like {ErrorCode.STREAM_NOT_FOUND}")
    ],
) -> None:
    """Show one error."""
    code = next((code for code in ErrorCode if code == number), None)
    if code is None:
        raise UsageError(f"there is no error {number}; `slipstream errors ls` lists them")
    if wants_json():
        print_json(_entry(code))
        return
    say(
        f"NATS Error Code: {code}\n\n"
        f"        Description: {code.description}\n    HTTP Error Code: {code.status}"
    )
