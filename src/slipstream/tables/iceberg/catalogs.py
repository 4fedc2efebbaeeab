"""Where tables are: a folder with a catalog of its own, or a catalog that others keep.

    warehouse                       a folder; its catalog is SQLite, in `catalog.db`
    https://catalog.example/        a REST catalog
    catalog:prod                    a catalog of pyiceberg's configuration (~/.pyiceberg.yaml)

`properties` go to pyiceberg as they are: credentials, `warehouse`, `s3.endpoint` and the like.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.errors import ConfigError
from slipstream.extras import require
from slipstream.tables.errors import TableError, reason_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_SYNCED = "slipstream.tables.iceberg.synced_files.SyncedFileIO"
_CONFIGURED = "catalog:"
CATALOG_FILE = "catalog.db"


def require_iceberg() -> None:
    """Raise `MissingPackageError` if what tables need is not installed."""
    for package in ("pyarrow", "pyiceberg", "pyiceberg_core", "sqlalchemy"):
        require(package, extra="tables")


def open_catalog(where: str, properties: Mapping[str, str] | None = None) -> "Catalog":
    """The catalog at a folder, a URL, or of a name, as the module's docstring says.

    Makes the folder if it is not there. Raises `ConfigError`, `TableError`.
    """
    require_iceberg()
    from pyiceberg.catalog import load_catalog

    given = dict(properties or {})
    try:
        if where.startswith(("http://", "https://")):
            return load_catalog("rest", **{"type": "rest", "uri": where, **given})
        if where.startswith(_CONFIGURED):
            return load_catalog(where.removeprefix(_CONFIGURED), **given)
    except Exception as error:  # what the libraries of a catalog raise
        raise TableError(
            f"table catalog {where}: it cannot be opened: {reason_of(error)}"
        ) from error
    if "://" in where or not where:
        raise ConfigError(
            f"table catalog {where!r}: it is a folder, the URL of a REST catalog, or catalog:NAME. "
            "For an object store give its URL as the property `warehouse` of a catalog"
        )
    folder = Path(where).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    local = {
        "type": "sql",
        "uri": f"sqlite:///{folder / CATALOG_FILE}",
        "warehouse": folder.as_uri(),
        "py-io-impl": _SYNCED,
    }
    return load_catalog("slipstream", **local | given)
