"""Which build is under test, and the shared fixtures (each kind in a `fix_*.py` of its own).

Properties are tried with the same examples in every run, however long a busy machine takes for
one. `make explore`, which is `--hypothesis-profile=explore`, tries new ones.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import slipstream
from slipstream import build

pytest_plugins = [
    "tests.fix_certificates",
    "tests.fix_nats_server",
    "tests.fix_s3",
    "tests.fix_server_process",
]

SOURCE = Path(slipstream.__file__).parent

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")


def _stale_modules() -> list[str]:
    """Compiled modules whose sources were edited after they were built."""
    stale = []
    for module in build.COMPILED_MODULES:
        stem = SOURCE.joinpath(*module.split(".")[1:])
        extensions = list(stem.parent.glob(stem.name + ".*.so"))
        sources = [p for p in (stem.with_suffix(s) for s in (".py", ".pyx", ".pxd")) if p.exists()]
        leaf = stem.with_suffix(".pyx")
        if leaf.exists():  # the twin beside a leaf is not what the extension is built from
            sources = [p for p in sources if p.suffix != ".py"]
        if extensions and sources:
            newest = max(p.stat().st_mtime for p in sources)
            if extensions[0].stat().st_mtime < newest:
                stale.append(module)
    return stale


def pytest_configure(config: pytest.Config) -> None:
    stale = _stale_modules()
    if stale:
        raise pytest.UsageError(
            "these modules were edited after they were compiled, so the old code would be tested: "
            + ", ".join(stale)
            + ". Run `make build`."
        )
    wanted = os.environ.get("SLIPSTREAM_BUILD")
    if wanted and wanted != build.describe():
        raise pytest.UsageError(
            f"the {wanted} build was asked for, but this is the {build.describe()} one"
        )


def pytest_report_header() -> str:
    return f"slipstream {slipstream.__version__}, {build.describe()} build"
