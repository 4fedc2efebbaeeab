"""`slipstream auth`: the group whose parts `main` names."""

from slipstream.cli.session import new_app

app = new_app("Operators, accounts and users of servers in operator mode, and their keys.")
