"""The table of the API's errors is what its generator makes of tools/api_errors.json."""

import runpy
from pathlib import Path

from slipstream.model import error_codes

TOOL = Path(__file__).parents[2] / "tools" / "generate_api_errors.py"


def test_the_table_is_the_one_that_is_generated() -> None:
    text = Path(str(error_codes.__file__)).read_text()
    assert text == runpy.run_path(str(TOOL))["text"](), "run tools/generate_api_errors.py"


def test_an_error_has_its_number_its_status_and_its_text() -> None:
    missing = error_codes.ErrorCode.STREAM_NOT_FOUND
    assert (missing, missing.status, missing.description) == (10059, 404, "stream not found")
    assert f"{missing}" == "10059"
