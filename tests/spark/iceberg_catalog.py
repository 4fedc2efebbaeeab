"""A REST catalog of the tests' own that Iceberg's Spark runtime and pyiceberg have in common."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableRequest

from slipstream.tables.iceberg import open_catalog
from tests.tables.test_rest_catalog import RestCatalog

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
TABLE = "lake.streams.orders"


class SparksRestCatalog(RestCatalog):
    """What Spark asks for besides."""

    lock: threading.Lock

    def do_HEAD(self) -> None:
        """Whether a namespace or a table is there."""
        self._answer(204 if self._is_there() else 404, None)

    def do_GET(self) -> None:
        """The configuration, a namespace or a table."""
        name = self._name() if "/namespaces/" in self.path else ()
        if len(name) == 1:
            if self._is_there():
                self._answer(200, {"namespace": list(name), "properties": {}})
            else:
                self._refuse(404, "NoSuchNamespaceException", KeyError(name))
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """As pyiceberg asks it; Spark does not repeat the table's name in the body of a commit."""
        if len(self._name()) == 2:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            namespace, name = self._name()
            asked["identifier"] = {"namespace": [namespace], "name": name}
            self._commit(CommitTableRequest.model_validate(asked))
        else:
            super().do_POST()

    def _is_there(self) -> bool:
        name = self._name()
        if len(name) == 1:
            return name in self.catalog.list_namespaces()
        return self.catalog.table_exists(name)

    def _commit(self, asked: Any) -> None:
        with self.lock:
            try:
                super()._commit(asked)
            except ValueError as error:  # another branch has got a snapshot in between: try again
                self._refuse(409, "CommitFailedException", error)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[tuple[str, Catalog]]:
    """The URL of a catalog, and the catalog itself as pyiceberg has it."""
    kept = open_catalog(str(folder))
    state = {"catalog": kept, "lost_answers": [], "commits": 0, "lock": threading.Lock()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (SparksRestCatalog,), state))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def settings(url: str) -> dict[str, str]:
    """What a session is given to have the catalog under the name `lake`."""
    return {
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": url,
        "spark.sql.catalog.lake.rest-metrics-reporting-enabled": "false",
    }
