"""What the pages' templates keep to."""

import re
from pathlib import Path

import pytest

import slipstream.console

TEMPLATES = sorted((Path(slipstream.console.__file__).parent / "templates").glob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_button_that_acts_through_a_script_waits_for_it(template: Path) -> None:
    text = template.read_text()
    found = re.findall(r"<button[^>]*hx-post[^>]*>", text)
    for form in re.findall(r"<form[^>]*hx-post.*?</form>", text, re.DOTALL):
        found += re.findall(r'<button type="submit"[^>]*>', form)
    assert [button for button in found if " disabled" not in button] == []
