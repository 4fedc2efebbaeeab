"""Builds the compiled modules that `slipstream.build` lists; everything else is in pyproject.toml.

``SLIPSTREAM_PURE=1`` leaves them out and gives the plain Python build. ``SLIPSTREAM_SANITIZE=1``
builds them with AddressSanitizer and UndefinedBehaviorSanitizer, for `make sanitize`.
A module that fails to compile fails the build: nothing falls back in silence.
"""

import os
import runpy
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
BUILD = runpy.run_path(str(ROOT / "src" / "slipstream" / "build.py"))

OPTIMISED = ["-O3"]
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
    if os.environ.get("SLIPSTREAM_PURE") == "1":
        return []
    from Cython.Build import cythonize

    only = os.environ.get("SLIPSTREAM_ONLY", "")
    sanitize = os.environ.get("SLIPSTREAM_SANITIZE") == "1"
    found = [
        Extension(
            module,
            [source_of(module)],
            extra_compile_args=[
                *(SANITIZED if sanitize else OPTIMISED),
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
    result: list[Extension] = cythonize(
        found,
        build_dir="build/cython",
        nthreads=2,
        compiler_directives={
            "language_level": 3,
            "annotation_typing": False,
            "cdivision": True,
            "embedsignature": True,
            "profile": os.environ.get("SLIPSTREAM_PROFILE") == "1",
        },
    )
    return result


setup(ext_modules=extensions())
