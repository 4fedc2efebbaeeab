"""What was measured, kept as JSON, and the page made of it.

Each part of the benchmark replaces the rows that it measured and leaves the others, so that the
table can be measured by parts. Rows measured under other circumstances than the first say so.
"""

import json
import os
import platform
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import slipstream
from bench.programs import rustc_version
from bench.servers import NATS_SERVER
from slipstream import build

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
DATA = HERE / "results.json"
Row = dict[str, Any]

PREAMBLE = """\
# Results

Written by `make bench`. Slipstream acknowledges what is on disk; nats-server's default does not
wait for the disk, and *always* is nats-server with `sync_interval: always`. The servers take turns,
so a ratio says more than a rate. In each round they come in random order. A figure is the
median of the rounds, a ratio that of the medians, with a 95% interval (bootstrap); a goal is met
only if the whole interval meets it. Rows measured before that have, with ±, how far a round's ratio
lay from the median ratio. A second run agrees when the two intervals, each at least 5% wide to
either side, overlap. Slipstream runs with `busy_poll`, its default, unless a row says so. The limit
of a load is what the same load generator reaches against a server that does nothing
(`bench/ideal.rs`), asleep or awake while it waits, whichever is better, and, with file storage,
what the disk takes (`docs/performance.md`).
"""


def measured_on() -> str:
    """Machine and versions, as one line."""
    nats = subprocess.run(
        [NATS_SERVER.command[0], "--version"], capture_output=True, text=True
    ).stdout.strip()
    return (
        f"{_processors()}, {_memory_gb():.0f} GB, {platform.system()} {platform.release()}; "
        f"CPython {platform.python_version()}, {rustc_version()}; "
        f"Slipstream {slipstream.__version__} ({build.describe()} build), {nats}"
    )


def save(part: str, rows: list[Row], **facts: Any) -> None:
    """Keep the rows of one part (`loads`, `scale`, `limits`), by name, and write the page anew."""
    known = load()
    section = known.setdefault(part, {"rows": {}})
    on, date = measured_on(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    for row in rows:
        section["rows"][row["name"]] = {**row, "on": on, "date": date}
    section.update(facts)
    DATA.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    RESULTS.write_text(page(known))


def load() -> dict[str, Any]:
    """What is known so far."""
    known: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    return known


def page(known: dict[str, Any]) -> str:
    """The page as text."""
    text = PREAMBLE
    if "loads" in known:
        rows = list(known["loads"]["rows"].values())
        text += f"\n## Loads\n\n{_circumstances(rows)}\n"
        text += f"{_rounds(rows)}. Messages per second, or µs where it says so.\n\n"
        text += (
            "| load (128-byte bodies) | Slipstream | nats-server | ratio | 95% interval | goal | "
            "| limit |\n"
            "|---|---:|---:|---:|---:|---:|---|---:|\n"
        )
        text += "".join("| " + " | ".join(load_cells(row)) + " |\n" for row in rows)
        text += "".join("\n" + line + "\n" for line in known["loads"].get("again", []))
    if "scale" in known:
        rows = list(known["scale"]["rows"].values())
        text += f"\n## At rest and at scale\n\n{_circumstances(rows)}\n\n"
        text += "| | Slipstream | nats-server | goal | |\n|---|---:|---:|---:|---|\n"
        text += "".join("| " + " | ".join(scale_cells(row)) + " |\n" for row in rows)
    if "spark_kafka" in known:
        text += _spark_section(known["spark_kafka"])
    if "spark_steady" in known:
        text += _steady_section(known["spark_steady"])
    if "limits" in known:
        rows = list(known["limits"]["rows"].values())
        text += f"\n## What this machine can do\n\n{_circumstances(rows)}\n\n| | |\n|---|---:|\n"
        text += "".join(f"| {row['name']} | {figure(row['value'])} |\n" for row in rows)
    if "curves" in known:
        rows = list(known["curves"]["rows"].values())
        text += f"\n## Cost against size\n\n{_circumstances(rows)}\nSee the plots in "
        text += "`docs/performance.md`; the figures are in `results.json`.\n"
    return text


def _spark_section(part: Row) -> str:
    """Spark on streams and on Kafka's topics."""
    rows = list(part["rows"].values())
    low, high = part["load"]
    text = f"\n## Spark, beside Kafka's connector\n\n{_circumstances(rows)}\n"
    text += (
        f"{part['kafka']}. {part['rounds']} rounds, {part['messages']:,} messages of 200 bytes, "
        f"`local[2]`; the load average before a round was {low:.1f} to {high:.1f}. "
        "A session writes at least once first, and exactly once when it is warmer. "
        "The limit is what a source and a sink in Python reach that do nothing. "
        "`python -m bench.spark_kafka` writes this.\n\n"
        "| | Slipstream | Kafka | ratio | 95% interval | goal | | limit |\n"
        "|---|---:|---:|---:|---:|---:|---|---:|\n"
    )
    return text + "".join("| " + " | ".join(load_cells(row)) + " |\n" for row in rows)


def _steady_section(part: Row) -> str:
    """A query that follows 20,000 messages a second."""
    rows = list(part["rows"].values())
    text = f"\n### 20,000 messages a second, for {part['seconds']:g} s\n\n{_circumstances(rows)}\n"
    text += "![behind, and memory, over time](../docs/plots/spark_steady.png)\n\n"
    text += "| | Slipstream | Kafka | goal | |\n|---|---:|---:|---:|---|\n"
    return text + "".join("| " + " | ".join(scale_cells(row)) + " |\n" for row in rows)


def load_cells(row: Row) -> list[str]:
    """A load's cells as text."""
    sign = "≤" if row["lower_is_better"] else "≥"
    theirs = [figure(row["theirs"])]
    if row["always"] is not None:
        theirs.append(f"(always: {figure(row['always'])})")
    ratios, intervals, goals = [], [], []
    for form, ratio, goal in (
        ("{}x", row["ratio"], row["goal"]),
        ("({}x)", row["ratio_always"], row["goal_always"]),
    ):
        if ratio is not None:
            middle, reach = _ratio_cells(ratio, row)
            ratios.append(form.format(middle))
            intervals.append(form.format(reach) if isinstance(ratio, list | tuple) else reach)
        if goal is not None:
            goals.append(form.format(f"{sign} {goal:g}"))
    if row.get("share") is not None:
        middle, low, high = row["share"]
        ratios.append(f"{middle:.0%} of {row['share_of']}")
        intervals.append(f"{low:.0%}-{high:.0%}")
        goals.append(f"≥ {row['goal_share']:.0%}")
    if row.get("bandwidth") is not None:
        ratios.append(f"{row['bandwidth']:.0%} of the disk")
    if row.get("bound") is not None:
        _, low, high = row["own"]
        intervals.append(f"[{figure(low)}-{figure(high)}]")
        goals.append(f"[≤ {figure(row['bound'])}]")
    if row.get("floor") is not None:
        _, low, high = row["own"]
        intervals.append(f"[{figure(low)}-{figure(high)}]")
        goals.append(f"[≥ {figure(row['floor'])}]")
    return [
        row["name"],
        figure(row["ours"]),
        " ".join(theirs),
        " ".join(ratios),
        " ".join(dict.fromkeys(intervals)),
        " ".join(goals),
        "met" if row["met"] else "**not met**",
        figure(row["limit"]) if row.get("limit") else "",
    ]


def _ratio_cells(ratio: Any, row: Row) -> tuple[str, str]:
    """A ratio, and how sure it is; rows of an earlier benchmark have one number, and the noise."""
    if isinstance(ratio, list | tuple):
        middle, low, high = ratio
        return f"{middle:.2f}", f"{low:.2f}-{high:.2f}"
    return f"{ratio:.2f}", f"±{row['noise']:.0%}"


def scale_cells(row: Row) -> list[str]:
    """The cells of a figure at rest or at scale."""
    met = "met" if row["met"] else "**not met**"
    theirs = "" if row["theirs"] is None else figure(row["theirs"])
    return [row["name"], figure(row["ours"]), theirs, row["goal"], met]


def figure(value: float) -> str:
    """A number with as many digits as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def line(cells: list[str], widths: tuple[int, ...]) -> str:
    """Cells in columns, for the terminal: the first to the left, the others to the right."""
    texts = [cell.replace("**", "") for cell in cells]
    first = f"{texts[0]:<{widths[0]}}"
    return first + "".join(f" {t:>{w}}" for t, w in zip(texts[1:], widths[1:], strict=False))


def _rounds(rows: list[Row]) -> str:
    """How often most rows were measured, and which ones another number of times."""
    usual, _ = Counter(row["rounds"] for row in rows).most_common(1)[0]
    others = sorted({row["rounds"] for row in rows} - {usual})
    named = [
        f"{count} of " + ", ".join(f"*{row['name']}*" for row in rows if row["rounds"] == count)
        for count in others
    ]
    return "; ".join([f"{usual} rounds", *named])


def _circumstances(rows: list[Row]) -> str:
    """When and on what, and which rows were measured another time."""
    first = rows[0]
    text = f"{first['date']}, {first['on']}.\n"
    for row in rows:
        if (row["on"], row["date"][:10]) != (first["on"], first["date"][:10]):
            text += f"*{row['name']}*: {row['date']}, {row['on']}.\n"
    return text


def _processors() -> str:
    model = platform.machine()
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            model = text.split(":", 1)[1].strip()
            break
    return f"{os.cpu_count()} processors ({model})"


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
