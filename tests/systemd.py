"""What systemd says of a unit."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian: apt-get install systemd)",
)


def is_well_formed(unit: Path) -> bool:
    """Whether systemd finds nothing wrong with slipstream's unit and what is beside it."""
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in found.stderr.splitlines() if "slipstream" in line]
    print("\n".join(ours))  # shown where a test fails
    return found.returncode == 0 and not ours
