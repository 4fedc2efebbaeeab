"""`slipstream why`: why a consumer does or does not get messages, in plain words."""

from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated

import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.output import print_json, say, styled
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.client.errors import PermissionsError
from slipstream.client.jetstream.why import explain_consumer
from slipstream.model.why import Reason, ReasonCode

app = new_app(group=False)

WIDTH_MAX = 100


@command(app, "why")
async def why(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")] = "",
) -> None:
    """Say why a consumer does or does not get messages."""
    try:
        async with jetstream() as js:
            stream, consumer = await choose_consumer(js, stream, consumer)
            info = await js.consumer_info(stream, consumer)
            reasons = (await explain_consumer(js, info)).reasons
    except PermissionsError as error:
        denied = f"The server forbids this user to ask: {error}"
        reasons, info = [Reason(ReasonCode.PERMISSION, denied)], None
    blocked = [reason for reason in reasons if reason.blocks]
    if wants_json():
        print_json(
            {
                "stream": stream,
                "consumer": consumer,
                "delivers": not blocked,
                "reasons": reasons,
                "info": info,
            }
        )
        return
    verdict = "gets no messages now" if blocked else "gets messages"
    say(styled(f"Consumer {stream} > {consumer} {verdict}.", "1") + "\n")
    for reason in blocked + [reason for reason in reasons if not reason.blocks]:
        sign = styled("✗", "31") if reason.blocks else "·"
        first, *more = wrap(str(reason), min(get_terminal_size().columns, WIDTH_MAX) - 4)
        say("\n    ".join([f"  {sign} {first}", *more]))
