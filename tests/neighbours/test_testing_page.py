"""The examples of docs/testing.md are files of tests, which pass."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks

PAGE = "testing.md"
SECONDS = 180.0
RUNNERS = {  # of a file; what else it needs
    "test_with_unittest.py": ((), ("-m", "unittest")),
    "test_shop.py": (("django",), ("-m", "django", "test", "--settings", "site_settings")),
    "test_orders_app.py": (("fastapi",), ("-m", "pytest", "-q", "-p", "no:cacheprovider")),
}
BY_PYTEST = ((), ("-m", "pytest", "-q", "-p", "no:cacheprovider"))

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs" / PAGE).exists(), reason="the docs are not beside the tests"
)


def _files() -> dict[str, str]:
    """The examples by the names that their first lines give."""
    return {text.split("\n", 1)[0].removeprefix("# "): text for text in blocks(PAGE)}


@pytest.mark.parametrize("name", [name for name in _files() if name.startswith("test_")])
def test_an_example_of_the_page_passes(name: str, tmp_path: Path) -> None:
    packages, words = RUNNERS.get(name, BY_PYTEST)
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    for file, text in _files().items():
        (tmp_path / file).write_text(text)
    (tmp_path / "site_settings.py").write_text("SECRET_KEY = 'of a test'\n")
    what = name.removesuffix(".py") if "pytest" not in words else name
    done = subprocess.run(
        [sys.executable, *words, what],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout or "2 passed" in done.stdout or "OK" in done.stderr
