"""Object stores: what is in them, getting, putting and removing it."""

from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slipstream.client.object_store import ObjectInfo
from slipstream.console.render import segment
from slipstream.console.visit import FormError, Visit

OBJECTS_PER_PAGE = 50
READ_BYTES = 256 * 1024


async def stores(request: Request) -> Response:
    """The list."""
    visit = Visit(request)
    look = await visit.sampler.fresh()
    found = [info for info in look.streams if info.name.startswith("OBJ_")]
    return visit.page("stores.html", look=look, stores=found)


async def objects(request: Request) -> Response:
    """What is in a store."""
    visit = Visit(request)
    bucket, wanted, at = visit.path("bucket"), visit.asked("q"), visit.asked_number("at")
    store = await visit.js.object_store(bucket)
    info = await visit.js.stream_info(f"OBJ_{bucket}")
    found = [one for one in await store.list() if wanted.lower() in one.name.lower()]
    return visit.page(
        "objects.html",
        info=info,
        bucket=bucket,
        objects=found[at : at + OBJECTS_PER_PAGE],
        at=at,
        total=len(found),
        per_page=OBJECTS_PER_PAGE,
        wanted=wanted,
    )


async def download(request: Request) -> Response:
    """An object's bytes, always as a file to keep: what is in it is not for this page to show."""
    visit = Visit(request)
    name = visit.asked("name")
    store = await visit.js.object_store(visit.path("bucket"))
    reader = await store.open(name)
    info: ObjectInfo = reader.info

    async def chunks() -> AsyncIterator[bytes]:
        async with reader:
            async for chunk in reader:
                yield chunk

    base = name.replace("\\", "/").rpartition("/")[2] or "object"
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(base, safe='')}",
        "content-length": str(info.size),
    }
    return StreamingResponse(chunks(), media_type="application/octet-stream", headers=headers)


async def upload(request: Request) -> Response:
    """Store a file as an object, in the place of the one of that name."""
    visit = Visit(request)
    bucket = visit.path("bucket")
    file = await visit.upload("file")
    name = (await visit.form()).get("name", "").strip() or (file.filename or "")
    store = await visit.js.object_store(bucket)
    info = await store.put(name, _chunks(file))
    text = f"Object {info.name} was stored: {info.size:,} bytes."
    return visit.go(f"/objects/{segment(bucket)}", text)


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(READ_BYTES):
        yield chunk


async def delete(request: Request) -> Response:
    """Remove an object, once its name was typed."""
    visit = Visit(request)
    bucket, name = visit.path("bucket"), visit.asked("name")
    if not name:
        raise FormError("Say which object to delete.")
    await visit.confirmed(name)
    store = await visit.js.object_store(bucket)
    await store.delete(name)
    return visit.go(f"/objects/{segment(bucket)}", f"Object {name} was deleted.")


ROUTES = (
    ("GET", "/objects", stores),
    ("GET", "/objects/{bucket}", objects),
    ("GET", "/objects/{bucket}/get", download),
    ("POST", "/objects/{bucket}/put", upload),
    ("POST", "/objects/{bucket}/delete", delete),
)
