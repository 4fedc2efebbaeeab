"""A schema registry on this machine that speaks Confluent's REST protocol, as far as it is used.

Its answers are those of the published API: paths, error codes, schemaType left out for Avro.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class StubRegistry:
    """What is registered, and every request as (method, path, authorization)."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.is_source_only = False  # Protobuf as source text, as some registries answer it
        self.cannot_serialize = False  # Protobuf, at which some registries fail
        self.refuses = False  # every new version, as incompatible
        self.url = ""

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema; its id."""
        entry = {"schemaType": kind, "schema": schema, "references": list(references)}
        identity = next((i for i, known in self.schemas.items() if known == entry), 0)
        if not identity:
            identity = len(self.schemas) + 1
            self.schemas[identity] = entry
        versions = self.subjects.setdefault(subject, [])
        if identity not in versions:
            versions.append(identity)
        return identity

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a request."""
        url = urlsplit(path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        is_serialized = parse_qs(url.query).get("format") == ["serialized"]
        if is_serialized and self.cannot_serialize:
            return 500, {"error_code": 500, "message": "Syntax error in shop.proto"}
        match (method, *parts):
            case ("GET", "schemas", "ids", identity):
                if int(identity) not in self.schemas:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, self._shown(int(identity), is_serialized)
            case ("GET", "subjects", subject, "versions", version):
                ids = self.subjects.get(subject)
                if ids is None:
                    told = f"Subject '{subject}' not found."
                    return 404, {"error_code": 40401, "message": told}
                number = len(ids) if version == "latest" else int(version)
                identity = ids[number - 1]
                about = {"subject": subject, "version": number, "id": identity}
                return 200, about | self._shown(identity, is_serialized)
            case ("POST", "subjects", subject, "versions"):
                if self.refuses:
                    told = "Schema being registered is incompatible with an earlier schema"
                    return 409, {"error_code": 409, "message": told}
                kind = body.get("schemaType", "AVRO")
                return 200, {"id": self.add(subject, body["schema"], kind)}
            case ("POST", "compatibility", "subjects", subject, "versions", _):
                if subject not in self.subjects:
                    return 404, {"error_code": 40401, "message": "Subject not found."}
                messages = ["a reason"] if self.refuses else []
                return 200, {"is_compatible": not self.refuses, "messages": messages}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _shown(self, identity: int, is_serialized: bool) -> dict[str, Any]:
        entry = dict(self.schemas[identity])
        if entry["schemaType"] == "AVRO":
            del entry["schemaType"]
        elif entry["schemaType"] == "PROTOBUF" and (self.is_source_only or not is_serialized):
            entry["schema"] = 'syntax = "proto3"; ...'
        if not entry["references"]:
            del entry["references"]
        return entry


@contextmanager
def serve() -> Iterator[StubRegistry]:
    """A registry that listens."""
    registry = StubRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            told = self.headers.get("Authorization", "")
            registry.requests.append((self.command, self.path, told))
            status, answer = registry.answer(self.command, self.path, body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _do

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
