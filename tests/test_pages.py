"""Every example that users are shown runs in some test, and the first of each page is short."""

import re
from pathlib import Path

import pytest

import slipstream
from tests.pages import LINES_MAX_FIRST, ROOT, blocks, run
from tests.server.telemetry.collector import Collector

DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the docs are not beside the tests")


def naming_tests(name: str) -> list[Path]:
    """Test files in which `name` is mentioned."""
    return [path for path in (ROOT / "tests").rglob("test_*.py") if name in path.read_text()]


async def test_the_examples_of_the_servers_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("server.md"):
        await run(block, {})
    assert capsys.readouterr().out.startswith("nats://")
    assert (tmp_path / "data").is_dir()


async def test_the_examples_of_the_monitoring_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        for block in blocks("monitoring.md"):
            await run(block, {"Server": slipstream.Server})
    assert capsys.readouterr().out.startswith("http://")
    names = {span.name for span in collector.spans}
    assert names == {"ORDERS store", "ORDERS workers deliver"}
    assert "slipstream_publish_ack_seconds" in collector.metrics


def test_each_page_with_examples_has_a_test_that_runs_them() -> None:
    pages = [page.name for page in DOCS.glob("*.md") if blocks(page.name)]
    assert len(pages) > 7
    assert [page for page in pages if not naming_tests(page)] == []


def test_each_file_of_the_examples_has_a_test_that_runs_it() -> None:
    shown = [p.name for p in EXAMPLES.iterdir() if not p.name.startswith(("_", "."))]
    assert len(shown) >= 5
    assert [name for name in shown if not naming_tests(name)] == []


@pytest.mark.parametrize("page", sorted(page.name for page in DOCS.glob("*.md")))
def test_the_first_example_of_a_chapter_is_short_besides_its_imports(page: str) -> None:
    for chapter in re.split(r"^## ", (DOCS / page).read_text(), flags=re.MULTILINE):
        found = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)
        if found:
            lines = [line for line in found[0].splitlines() if line.strip()]
            code = [line for line in lines if not line.startswith(("import ", "from "))]
            assert len(code) <= LINES_MAX_FIRST, chapter.splitlines()[0]
