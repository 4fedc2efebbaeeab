"""`slipstream errors`: JetStream's error codes."""

import re
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.session import new_app, wants_json
from slipstream.engine.protocol.api_errors import API_ERRORS

app = new_app("Look up JetStream's error codes.")


def _entry(code: int) -> dict[str, object]:
    status, text = API_ERRORS[code]
    return {"err_code": code, "code": status, "description": text}


@app.command("ls")
def ls(
    pattern: Annotated[str, typer.Argument(metavar="TEXT", help="Only those with this text")] = "",
) -> None:
    """List the errors."""
    found = [
        code for code, (_, text) in API_ERRORS.items() if re.search(pattern, text, re.IGNORECASE)
    ]
    if wants_json():
        print_json([_entry(code) for code in found])
        return
    rows = [(str(code), str(API_ERRORS[code][0]), API_ERRORS[code][1]) for code in found]
    table("JetStream errors", ("NATS Code", "HTTP Error Code", "Description"), rows)


@app.command("lookup")
def lookup(code: Annotated[int, typer.Argument(metavar="CODE", help="Like 10059")]) -> None:
    """Show one error."""
    if code not in API_ERRORS:
        raise UsageError(f"there is no error {code}; `slipstream errors ls` lists them")
    status, text = API_ERRORS[code]
    if wants_json():
        print_json(_entry(code))
        return
    say(f"NATS Error Code: {code}\n\n        Description: {text}\n    HTTP Error Code: {status}")
