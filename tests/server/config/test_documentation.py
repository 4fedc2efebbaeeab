"""docs/configuration.md has every directive, as the code has it."""

import runpy
from pathlib import Path

from slipstream.server.config import load_text

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = ROOT / "docs" / "configuration.md"


def test_the_tables_are_those_of_the_code() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_configuration.py"))
    text = PAGE.read_text()
    assert text == tool["page"](text), "run tools/generate_configuration.py"
    for name in ("max_payload", "sync_interval", "pinned_certs", "allow_responses", "websocket"):
        assert f"`{name}`" in text


def test_the_example_is_a_good_file(tmp_path: Path) -> None:
    example = PAGE.read_text().split("```")[1]
    (tmp_path / "tls.conf").write_text("max_payload: 2MB\n")
    path = str(tmp_path / "server.conf")
    options = load_text(example, path, {"APP_PASSWORD": "secret"}).options
    assert options.authorization.users[0].password == "secret"
    assert options.limits.max_payload == 2 * 1024 * 1024
