"""Builds the compiled modules that `slipstream.build` lists; everything else is in pyproject.toml.

All cores work at it, unless ``build_ext --parallel N`` says how many. ``SLIPSTREAM_PURE=1`` leaves
the modules out and gives the plain Python build. ``SLIPSTREAM_SANITIZE=1`` builds them with
AddressSanitizer and UndefinedBehaviorSanitizer, for `make sanitize`.
A module that fails to compile fails the build: nothing falls back in silence.
"""

import os
import runpy
import shlex
import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
BUILD = runpy.run_path(str(ROOT / "src" / "slipstream" / "build.py"))

# -O3, which Python's own flags ask for, makes the wire's tight loops 3% to 10% faster. The log's
# benchmark does not gain from it, and compiling takes a quarter longer than with -O2. With -g it
# takes half as long again, and nobody debugs the generated code. S2 decompresses a third faster.
TIGHT_LOOPS = ("slipstream.wire.", "slipstream.archive.s2_block")
OPTIMISED = ["-O2", "-g0"]
# -O1 compiles in half the time. Two checks are left out: an unaligned read of a number is what a
# column of bytes is for, and a copy of no bytes from or to nowhere copies nothing.
SANITIZED = [
    "-O1",
    "-g1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize=alignment,nonnull-attribute",
    "-fno-sanitize-recover=undefined",
]


def source_of(module: str) -> str:
    """Path of a module's source: its `.pyx` leaf where there is one, else the `.py` itself."""
    stem = Path("src") / Path(*module.split("."))
    leaf = stem.with_suffix(".pyx")
    return str(leaf if (ROOT / leaf).exists() else stem.with_suffix(".py"))


def extensions() -> list[Extension]:
    """The modules to compile, none for the plain build; nothing is translated or compiled yet."""
    if os.environ.get("SLIPSTREAM_PURE") == "1":
        return []
    only = os.environ.get("SLIPSTREAM_ONLY", "")
    sanitize = os.environ.get("SLIPSTREAM_SANITIZE") == "1"
    return [
        Extension(
            module,
            [source_of(module)],
            extra_compile_args=[
                *(SANITIZED if sanitize else OPTIMISED),
                *(["-O3"] if module.startswith(TIGHT_LOOPS) and not sanitize else []),
                "-fno-strict-aliasing",
                "-fwrapv",
                # Of no use in generated code.
                "-Wno-array-bounds",
                "-Wno-sign-compare",
            ],
            extra_link_args=["-fsanitize=address,undefined"] if sanitize else [],
        )
        for module in BUILD["COMPILED_MODULES"]
        if only in module
    ]


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def what_is_missing() -> str:
    """What compiling needs and this machine has not, and how to get it; "" if all is there."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    headers = Path(sysconfig.get_path("include"))
    if shutil.which(compiler) is None:
        missing = f"a C compiler, and there is no {compiler!r} on PATH"
        remedy = '"apt install gcc" or "dnf install gcc"'
    elif not (headers / "Python.h").exists():
        missing = f"Python's headers, and there is no Python.h in {headers}"
        remedy = '"apt install python3-dev" or "dnf install python3-devel"'
    else:
        return ""
    return (
        f"slipstream: its compiled modules need {missing}: {remedy} brings it, "
        "and SLIPSTREAM_PURE=1 installs without compiled modules (the same, but slower)"
    )


class BuildModules(build_ext):
    """Translates and compiles the modules, each step on all cores."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = cores()

    def run(self) -> None:
        if self.extensions:
            missing = what_is_missing()
            if missing:
                raise SystemExit(missing)
            self._translate()
        super().run()

    def _translate(self) -> None:
        """From Cython to C, where a source is newer; only now, because metadata needs no C."""
        from Cython.Build import cythonize

        translated = cythonize(
            list(self.extensions),
            build_dir="build/cython",
            nthreads=self.parallel,
            quiet=not self.verbose,
            compiler_directives={
                "language_level": 3,
                "annotation_typing": False,
                "cdivision": True,
                "embedsignature": True,
                "profile": os.environ.get("SLIPSTREAM_PROFILE") == "1",
            },
        )
        sources = {extension.name: extension.sources for extension in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]


if __name__ == "__main__":  # not again in the processes that translate
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildModules})
