"""What the README promises holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import slipstream

README = Path(__file__).parent.parent / "README.md"


def test_the_first_example_runs_as_it_stands(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    done = subprocess.run(
        [sys.executable, "-c", example[1]],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(slipstream.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "orders.new b'Order #1001'" in done.stdout
