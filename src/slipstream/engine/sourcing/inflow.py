"""Beginning, changing and showing what a stream takes over from other streams."""

from typing import TYPE_CHECKING

from slipstream.engine.sourcing.mirror import Mirror
from slipstream.engine.sourcing.sources import Sources

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamInfo
    from slipstream.engine.stream.stream import Stream


def set_inflow(stream: "Stream", is_restored: bool = False) -> None:
    """Have `stream` take over what its configuration, which may have changed, says; `is_restored`:
    the server has just started, and the stream was there before.

    Nothing is taken over by a configuration that may be an older one: the stream may have been
    promoted since.
    """
    config = stream.config
    inflow = stream.inflow
    if stream.doubt:
        return
    if isinstance(inflow, Mirror):
        if config.mirror is None:
            inflow.stop(delete=True)
            inflow = None
        else:
            inflow.configured()
    elif isinstance(inflow, Sources):
        inflow.configured()
    if inflow is None and config.mirror is not None:
        inflow = Mirror(stream, config.mirror)
        inflow.begin()
    elif inflow is None and config.sources:
        inflow = Sources(stream, is_restored)
    stream.inflow = inflow


def inflow_info(stream: "Stream") -> "StreamInfo":
    """What StreamInfo says of a stream's mirror or sources."""
    inflow = stream.inflow
    if isinstance(inflow, Mirror):
        return {"mirror": inflow.info()}
    if isinstance(inflow, Sources) and stream.config.sources:
        return {"sources": inflow.info()}
    return {}
