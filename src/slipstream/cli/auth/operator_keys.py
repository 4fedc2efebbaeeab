"""`slipstream auth operator keys`: the keys with which an operator signs accounts."""

from typing import Annotated

import typer

from slipstream.cli.auth.choose import OperatorName, choose_operator
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note, print_json, say
from slipstream.cli.prompts import Force, confirm, may_ask, pick
from slipstream.cli.session import new_app, wants_json
from slipstream.errors import ConfigError

app = new_app("The keys with which an operator signs accounts.")


@app.command("ls")
def ls(name: OperatorName = "") -> None:
    """List the signing keys of an operator."""
    found = sorted(choose_operator(name).claims.nats.signing_keys)
    if wants_json():
        print_json(found)
    else:
        say("\n".join(found) or "No Signing Keys found")


@app.command("add")
def add(name: OperatorName = "") -> None:
    """Make a signing key."""
    operator = choose_operator(name)
    key = operator.new_key("O")
    operator.claims.nats.signing_keys = [*operator.claims.nats.signing_keys, key]
    operator.save()
    done(key, key=key)
    note("Servers believe it when their configuration has the operator's new JWT")


@app.command("rm")
def rm(
    name: OperatorName = "",
    key: Annotated[str, typer.Argument(metavar="KEY", help="The public key")] = "",
    force: Force = False,
) -> None:
    """Remove a signing key; accounts that it has signed are signed with another."""
    operator = choose_operator(name)
    nats = operator.claims.nats
    if not key:
        if not may_ask() or not nats.signing_keys:
            raise UsageError(
                f"KEY is missing: `slipstream auth operator keys ls {operator.name}` lists them"
            )
        key = pick("Select a Signing Key", sorted(nats.signing_keys))
    if key not in nats.signing_keys:
        raise ConfigError(
            f"operator keys rm: operator {operator.name} has no signing key {key}; "
            f"`slipstream auth operator keys ls {operator.name}` lists them"
        )
    confirm(f"Really remove signing key {key} of operator {operator.name}?", force)
    nats.signing_keys = [one for one in nats.signing_keys if one != key]
    operator.signing_key()  # what is left has to be able to sign
    accounts = [operator.account(one) for one in operator.accounts()]
    again = [account for account in accounts if account.claims.iss == key]
    for account in again:
        account.save()
    operator.save()
    operator.keys.remove(key)
    done(f"Removed signing key {key}", success=True, signed_again=[one.name for one in again])
    if again:
        note(f"Signed again, and to be pushed: {', '.join(one.name for one in again)}")
