"""`slipstream server`: look after a server. Its checks are in `check`, the rest in parts."""

from slipstream.cli.server.check import app as check_app
from slipstream.cli.session import new_app

app = new_app("Look after a server.")
app.add_typer(check_app, name="check")
