"""The small Rust programs of the benchmark, built when needed.

`loadgen` drives a server; `ideal` is a server that does nothing, whose figures are the upper bound
of a load on this machine; `ideal_group` is three that do nothing but have what is published synced
on a majority of them.
"""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE.parent / "build"
LOADGEN = BUILT / "loadgen"
IDEAL = BUILT / "ideal"
IDEAL_GROUP = BUILT / "ideal_group"
SHARED = HERE / "ideal_disk.rs"  # by the last two


def build_programs() -> None:
    """Compile what is missing or out of date; end with a clear message if there is no compiler."""
    for program in (LOADGEN, IDEAL, IDEAL_GROUP):
        source = HERE / f"{program.name}.rs"
        changed = max(path.stat().st_mtime for path in (source, SHARED))
        if program.exists() and program.stat().st_mtime > changed:
            continue
        if not shutil.which("rustc"):
            sys.exit(
                f"rustc is missing: {source.name}, which drives the servers, is written in Rust. "
                "Install it from your distribution (apt install rustc) or with rustup."
            )
        BUILT.mkdir(parents=True, exist_ok=True)
        print(f"==> building {program.name}", flush=True)
        subprocess.run(
            ["rustc", "-O", "--edition", "2021", "-o", str(program), str(source)], check=True
        )


def rustc_version() -> str:
    """The compiler's version, for the table."""
    if not shutil.which("rustc"):
        return "rustc missing"
    done = subprocess.run(["rustc", "--version"], capture_output=True, text=True)
    return " ".join(done.stdout.split()[:2])
