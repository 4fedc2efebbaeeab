"""The numbers behind the plots."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from slipstream.console.visit import Visit

Line = tuple[str, str]  # what it is called, and its series


def _answer(visit: Visit, lines: list[Line]) -> Response:
    history = visit.sampler.history
    return JSONResponse(
        {
            "times": history.times(),
            "lines": [{"label": label, "values": history.values(name)} for label, name in lines],
        }
    )


async def overview(request: Request) -> Response:
    """Messages in and out of all streams."""
    return _answer(Visit(request), [("Stored", "in"), ("Delivered", "out")])


async def lag(request: Request) -> Response:
    """What waits for all consumers."""
    return _answer(Visit(request), [("Lag", "lag")])


async def stream(request: Request) -> Response:
    """Messages into one stream."""
    visit = Visit(request)
    return _answer(visit, [("Stored", f"in {visit.path('stream')}")])


async def consumer(request: Request) -> Response:
    """What waits for one consumer, and what is out for acknowledgement."""
    visit = Visit(request)
    name = f"{visit.path('stream')} {visit.path('consumer')}"
    return _answer(visit, [("Lag", f"lag {name}"), ("Ack pending", f"acks {name}")])


async def consumer_rate(request: Request) -> Response:
    """Deliveries to one consumer."""
    visit = Visit(request)
    name = f"{visit.path('stream')} {visit.path('consumer')}"
    return _answer(visit, [("Delivered", f"out {name}")])


ROUTES = (
    ("GET", "/plots/overview", overview),
    ("GET", "/plots/lag", lag),
    ("GET", "/plots/streams/{stream}", stream),
    ("GET", "/plots/streams/{stream}/consumers/{consumer}", consumer),
    ("GET", "/plots/streams/{stream}/consumers/{consumer}/rate", consumer_rate),
)
