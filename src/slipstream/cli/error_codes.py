"""`slipstream errors`: JetStream's error codes."""

import re
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.session import new_app, wants_json
from slipstream.model.error_codes import ErrorCode

app = new_app("Look up JetStream's error codes.")


def _entry(code: ErrorCode) -> dict[str, object]:
    return {"err_code": code.value, "code": code.status, "description": code.description}


@app.command("ls")
def ls(
    pattern: Annotated[str, typer.Argument(metavar="TEXT", help="Only those with this text")] = "",
) -> None:
    """List the errors."""
    found = [code for code in ErrorCode if re.search(pattern, code.description, re.IGNORECASE)]
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
