"""One target in this process, guided by coverage: what `python -m fuzz` starts."""

import contextlib
import io
import sys
from importlib import import_module

import atheris

from fuzz.builds import Build


def main() -> None:
    """Arguments: the target's name, then those of libFuzzer. Ends the process."""
    name, *arguments = sys.argv[1:]
    target = import_module(f"fuzz.targets.{name}")
    compiled = Build(plain=False)
    with contextlib.redirect_stderr(io.StringIO()):  # atheris names each module
        plain = Build(plain=True, around=lambda: atheris.instrument_imports(include=["slipstream"]))
        one_input = target.make(plain, compiled)
    atheris.Setup([name, *arguments], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
