"""`slipstream cheat`: examples to copy."""

from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import say
from slipstream.cli.session import new_app

app = new_app(group=False)

EXAMPLES = {
    "serve": """\
# a server with JetStream, its data in ./slipstream-data
slipstream serve
# as a configuration file says, with HTTP monitoring
slipstream serve -c server.conf -m 8222""",
    "group": """\
# three servers that act as one, on this machine; Ctrl-C stops them
slipstream group up
slipstream group up --servers 5 --directory ./group --port 4300
# two, of which either goes on alone
slipstream group up --servers 2""",
    "pub": """\
# one message, and 10 with a number in each
slipstream pub orders.new "Order #1001"
slipstream pub orders.new "Order {{Count}}" --count 10 --sleep 100ms
# with a header, stored in a stream for certain
slipstream pub orders.new hello -H "Nats-Msg-Id: 1" --jetstream""",
    "sub": """\
slipstream sub "orders.>"
slipstream sub "orders.>" --queue workers
# everything a stream has, then what comes
slipstream sub "orders.>" --stream ORDERS --all""",
    "request": """\
slipstream reply help "you asked for {{Request}}"
slipstream request help please
slipstream request survey "" --replies 3""",
    "stream": """\
slipstream stream add ORDERS --subjects "orders.>" --storage file --retention limits --defaults
slipstream stream ls
slipstream stream info ORDERS
slipstream stream view ORDERS
slipstream stream get ORDERS 12
slipstream stream purge ORDERS --subject orders.old --force
slipstream stream backup ORDERS ./backup
slipstream stream restore ./backup
slipstream stream backup ORDERS s3://backups/ORDERS --incremental --expire 30d
slipstream stream restore s3://backups/ORDERS --to-time "2026-11-21 14:05" --name ORDERS-1405""",
    "consumer": """\
slipstream consumer add ORDERS order-processor --pull --deliver all --ack explicit --defaults
slipstream consumer next ORDERS order-processor --count 3 --ack
slipstream consumer report ORDERS
slipstream why ORDERS order-processor""",
    "kv": """\
slipstream kv add CONFIG --history 5
slipstream kv put CONFIG rate 10
slipstream kv get CONFIG rate --raw
slipstream kv watch CONFIG""",
    "counter": """\
slipstream stream add TOTALS --subjects "totals.>" --allow-counter --defaults
slipstream counter increment totals.orders 5
# a negative number stands after --
slipstream counter increment totals.orders -- -2
slipstream counter get totals.orders
slipstream counter ls "totals.>"
# the last increment, and what other streams have added
slipstream counter view totals.orders""",
    "object": """\
slipstream object add FILES
slipstream object put FILES video.mp4
slipstream object get FILES video.mp4 --output copy.mp4""",
    "bench": """\
slipstream bench pub test --msgs 1000000 --size 128
slipstream bench js bench.x --stream benchstream --msgs 100000
slipstream bench fetch --msgs 100000""",
    "auth": """\
# an operator with a system account, and the servers' part: the accounts come by `push`
slipstream auth operator add acme
slipstream auth operator generate --resolver full --output resolver.conf
# who may push, and a context to do it with
slipstream auth user add admin SYSTEM --credential admin.creds
slipstream context add system --server nats://localhost:4222 --creds admin.creds
# an account that may store, and a user who may publish orders
slipstream auth account add ORDERS --jetstream --js-disk 10GB --js-memory 1GB --defaults
slipstream auth user add alice ORDERS --pub-allow "orders.>" --credential alice.creds
slipstream --context system auth account push ORDERS
# a role: its users may what it says, also when that changes
slipstream auth account keys add ORDERS reader --sub-allow "orders.>" --pub-deny ">"
slipstream auth user add rita ORDERS --key reader --credential rita.creds
# credentials for a day; a user who may not come back
slipstream auth user credential today.creds alice --expire 24h
slipstream auth user rm alice --revoke --force
slipstream --context system auth account push ORDERS
# every private key in one file: keep it safe
slipstream auth operator backup acme acme.backup""",
    "jwt": """\
slipstream jwt decode alice.creds
# a key of your own, and what it has signed
slipstream auth nkey gen user --output me.nk
slipstream auth nkey sign file.txt me.nk > file.sig
slipstream auth nkey verify file.txt file.sig me.nk""",
    "context": """\
slipstream context add prod --server nats://prod:4222 --creds prod.creds --select
slipstream --context prod stream ls""",
}


@app.command("cheat")
def cheat(
    section: Annotated[str, typer.Argument(metavar="SECTION", help="Only this one")] = "",
) -> None:
    """Show examples."""
    if section and section not in EXAMPLES:
        raise UsageError(f'no examples for "{section}"; there are {", ".join(EXAMPLES)}')
    for name, text in EXAMPLES.items():
        if not section or section == name:
            say(f"# {name}\n\n{text}\n")
