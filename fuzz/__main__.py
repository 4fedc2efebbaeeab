"""`python -m fuzz [target ...] [--seconds N]`: look for inputs that break a target.

Each target runs in processes of its own, `--jobs` at a time. What it has learned is kept in
`build/fuzz/corpus`, and the next run goes on from there. An input that breaks it is written to
`build/fuzz/findings`; `python -m fuzz TARGET --replay FILE` shows again what it does.
With `--sanitize` the compiled modules are those of `build/sanitize` (see `make sanitize`), which
end the process at the first wrong access to memory.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from fuzz.builds import Build
from fuzz.targets import NAMES

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "fuzz"
SANITIZED = ROOT / "build" / "sanitize"
FOUND = Path(__file__).parent / "found"
INPUT_SECONDS_MAX = 30  # one input that takes longer is a finding
GRACE_SECONDS = 300  # to start, and to read the corpus
MEMORY_MB_MAX = 3000
SHOWN_BYTES = 6000  # of what a finding says, from its end


def main() -> int:
    """The exit status: 0 without findings."""
    arguments = _arguments()
    names = arguments.targets or NAMES
    if arguments.replay:
        return replay(names[0], [Path(file) for file in arguments.replay])
    with ThreadPoolExecutor(arguments.jobs) as pool:
        environment = sanitized() if arguments.sanitize else dict(os.environ)
        limits = [f"-max_total_time={arguments.seconds}", f"-seed={arguments.seed}"]
        outcomes = list(
            pool.map(lambda name: fuzz(name, arguments.seconds, limits, environment), names)
        )
    return int(not all(outcomes))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of what is tried (0: another each time)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at a time")
    parser.add_argument("--sanitize", action="store_true", help="with AddressSanitizer")
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="only what is in these files")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(NAMES)
    if unknown:
        parser.error(f"no target {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    if arguments.replay and len(arguments.targets) != 1:
        parser.error("--replay takes one target: name it first")
    return arguments


def replay(name: str, files: list[Path]) -> int:
    """Try inputs once, without looking for others."""
    one_input = import_module(f"fuzz.targets.{name}").make(Build(plain=True), Build(plain=False))
    for file in files:
        one_input(file.read_bytes())
        print(f"{name}: {file.name} breaks nothing")
    return 0


def sanitized() -> dict[str, str]:
    """The environment for the modules in `build/sanitize`; see `coverage_hooks.c`."""
    spec = importlib.util.find_spec("atheris.core_with_libfuzzer")
    assert spec is not None
    assert spec.origin is not None
    hooks = SANITIZED / "coverage_hooks.so"
    source = Path(__file__).parent / "coverage_hooks.c"
    run = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(hooks), str(source), "-ldl"]
    subprocess.run(run, check=True)
    names = ["libasan.so", "libstdc++.so"]  # both first: they have to know of each other
    files = [subprocess.check_output(["gcc", f"-print-file-name={name}"]) for name in names]
    runtimes = [file.decode().strip() for file in files]
    return os.environ | {
        "FUZZ_CORE": spec.origin,
        "LD_PRELOAD": " ".join([str(hooks), *runtimes]),
        "PYTHONPATH": os.pathsep.join([str(SANITIZED), os.environ.get("PYTHONPATH", "")]),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def fuzz(name: str, seconds: int, limits: list[str], environment: dict[str, str]) -> bool:
    """Whether a target held out so long, under these options of libFuzzer."""
    corpus, seeds, findings = WORK / "corpus" / name, WORK / "seeds" / name, WORK / "findings"
    for directory in (corpus, seeds, findings):
        directory.mkdir(parents=True, exist_ok=True)
    target = import_module(f"fuzz.targets.{name}")
    for number, seed in enumerate(target.seeds()):
        (seeds / f"seed-{number}").write_bytes(seed)
    words = WORK / f"{name}.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.DICTIONARY))
    known = FOUND / name
    command = [
        sys.executable, "-m", "fuzz.run", name, str(corpus), str(seeds),
        *([str(known)] if known.exists() else []),
        *limits, f"-timeout={INPUT_SECONDS_MAX}", f"-dict={words}",
        f"-rss_limit_mb={MEMORY_MB_MAX}", f"-artifact_prefix={findings}/{name}-",
        "-print_final_stats=1", "-max_len=4096", "-verbosity=1",
    ]  # fmt: skip
    log = WORK / f"{name}.log"
    begin = time.monotonic()
    with log.open("wb") as output:
        try:
            status = subprocess.run(
                command, cwd=ROOT, stdout=output, stderr=output, env=environment,
                timeout=seconds + GRACE_SECONDS, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{name}: did not come to its end, see {log}", flush=True)
            return False
    text = log.read_text(errors="replace")
    if status == 0:
        print(
            f"{name}: {_stated(text)} in {time.monotonic() - begin:.0f} s, no findings", flush=True
        )
        return True
    at = max(text.find("=== Uncaught Python exception"), text.find("ERROR: AddressSanitizer"), 0)
    shown = text[at : at + SHOWN_BYTES] if at else text[-SHOWN_BYTES:]
    print(f"{name}: FOUND something, see {log}\n{shown}", flush=True)
    return False


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _stated(text: str) -> str:
    """What libFuzzer says of its run."""
    wanted = "stat::number_of_executed_units:"
    runs = next((line.split()[-1] for line in text.splitlines() if line.startswith(wanted)), "?")
    covered = [line.split("cov: ")[1].split()[0] for line in text.splitlines() if "cov: " in line]
    return f"{runs} inputs, {covered[-1] if covered else '?'} branches"


if __name__ == "__main__":
    sys.exit(main())
