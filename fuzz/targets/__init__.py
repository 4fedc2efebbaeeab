"""One module for each target; what a module offers is said by `fuzz.target.Target`."""

from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)
