"""CONTRIBUTING leads a newcomer to the code: its stops and its answers are where it says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "slipstream"
PAGE = ROOT / "CONTRIBUTING.md"
STOPS_MAX = 12
STOP = re.compile(r"`([\w/]+\.py)`, `(\w+)`")
QUESTION = re.compile(
    r'^\| [^|]+\? \| `grep -rin "([^"]+)" src` \| `([\w/]+\.py)` \|$', re.MULTILINE
)

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is not beside the tests")


def functions_of(path: Path) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


@pytest.mark.parametrize("story", ["One message, end to end", "One micro-batch, end to end"])
def test_each_stop_of_a_story_is_a_function_that_is_there(story: str) -> None:
    told = PAGE.read_text().partition(f"**{story}**")[2]
    stops = re.findall(r"^\d+\. (.*)$", re.split(r"\n\n(?!\d+\. )", told)[0], re.MULTILINE)
    assert 5 < len(stops) <= STOPS_MAX
    for stop in stops:
        found = STOP.match(stop)
        assert found is not None, stop
        assert found[2] in functions_of(SOURCE / found[1]), stop


def test_each_question_is_answered_by_one_grep() -> None:
    questions = QUESTION.findall(PAGE.read_text())
    assert len(questions) >= 3
    for words, answer in questions:
        hits = [p for p in SOURCE.rglob("*.py") if words in p.read_text().lower()]
        assert SOURCE / answer in hits
        assert len(hits) <= 2
