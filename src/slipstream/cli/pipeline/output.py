"""What `spark-pipelines` prints, in few words: the progress of each flow, and one line of an error.

Spark writes warnings, stack traces and a picture of the plan for each failure. All of it goes to a
log file; on the screen is what a flow does, and what the innermost message says is wrong.
"""

import re
from pathlib import Path

# "2026-01-02 03:04:05: message" is of the pipeline; anything else is a log line, or a trace.
_EVENT = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d): (.*)")
_FLOW = re.compile(r"Flow '?(?P<flow>[\w.`]+)'? (?:is|has) (?P<state>[A-Z]+)(?P<more>.*)")
_OURS = re.compile(r"^(?:.*?: )??slipstream\.[\w.]+: (.+)")
_RAISED = re.compile(r"^(?:Error: |[\w.$]*(?:Error|Exception|Interrupt)(?:: |$))(.*)")
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in ')
_HIDDEN = ("Found ", "Loading pipeline spec", "Registering graph", "Loading definitions")
_WORDS = {"QUEUED": "", "STARTING": "", "RUNNING": "runs", "COMPLETED": "is done"}

NO_STREAM = (
    ": make it with `slipstream stream add` (for the development server by a file in streams/), "
    "or name the server that has it with --server"
)
HINTS = (
    (
        re.compile(r"DATA_SOURCE_NOT_FOUND.*jetstream", re.S),
        "this Spark knows no format jetstream: install slipstream[spark] in the environment of "
        "its workers and of its Connect server",
    ),
    (
        re.compile(r"LOCATION_ALREADY_EXISTS"),
        "the catalog has forgotten a table whose files are there: keep the catalog with the files "
        "(the metastore), or remove both",
    ),
    (
        re.compile(r"StatusCode\.UNAVAILABLE|failed to connect to all addresses"),
        "nothing answers at the address given with --remote: is a Spark Connect server there?",
    ),
)


def progress(line: str) -> str:
    """What to show of a line; "" for nothing."""
    event = _EVENT.fullmatch(line)
    if event is None:
        return ""
    text = event[2]
    flow = _FLOW.match(text)
    if flow:
        word = _WORDS.get(flow["state"], "has failed" if flow["state"] == "FAILED" else None)
        if word is None:
            return f"{event[1]}  {text}"
        return f"{event[1]}  {short_name(flow['flow'])} {word}" if word else ""
    if text.startswith(_HIDDEN):
        return ""
    if text.startswith("Importing "):
        return f"{event[1]}  Reading {Path(text[10:].rstrip('.')).name}"
    return f"{event[1]}  {text.removesuffix('...').removesuffix('.')}"


def short_name(name: str) -> str:
    """A table without the catalog and database that it is in when nothing else is said."""
    return name.replace("`", "").removeprefix("spark_catalog.").removeprefix("default.")


def explain(output: str, folder: Path) -> str:
    """Why it failed, in one line: the innermost message, where in the project, what to do."""
    lines = output.splitlines()
    ours = [match[1] for line in lines if (match := _OURS.match(line.strip()))]
    if ours:
        advice = NO_STREAM if "stream not found" in ours[-1] else ""
        return _place(lines, folder) + _one_line(ours[-1]) + advice
    for pattern, hint in HINTS:
        if pattern.search(output):
            return hint
    for at in range(len(lines) - 1, -1, -1):
        raised = _RAISED.match(lines[at])
        if raised:
            text = raised[1] or lines[at]
            return _place(lines, folder) + _one_line(_CLASS.split(text)[-1] or text)
    last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return _one_line(last)


def _one_line(text: str) -> str:
    return " ".join(re.split(r"SQLSTATE: ", text)[0].split())


def _place(lines: list[str], folder: Path) -> str:
    """The last line of the project's code in the trace."""
    for line in reversed(lines):
        frame = _FRAME.match(line)
        if frame and Path(frame[1]).is_relative_to(folder):
            return f"{Path(frame[1]).relative_to(folder)}:{frame[2]}: "
    return ""
