"""The curves as pictures: small multiples, four to a page, cost up, size to the right.

A flat line is what a good curve looks like, so each plot begins at zero cost, except where sizes of
messages make the cost grow by nature; those have two logarithmic axes.
"""

from pathlib import Path
from typing import Any

from bench.curve_loads import Curve

PLOTS = Path(__file__).parent.parent / "docs" / "plots"
PAGES = {
    "streams": ("messages", "subjects", "wildcards", "holes"),
    "consumers": ("consumers", "filtered", "idle", "slow"),
    "clients": ("streams", "connections", "size"),
}
COLORS = {"slipstream": "#0b6e99", "nats-server": "#c9702c"}
MARKERS = "os^D"
STYLES = ("-", "--", ":")
LOG_COST = (
    "size",
    "streams",
    "messages",
    "subjects",
    "wildcards",
    "holes",
)  # costs of very different kinds


def draw(curves: list[Curve], rows: dict[str, Any]) -> None:
    """Draw every page for which there are figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    PLOTS.mkdir(parents=True, exist_ok=True)
    by_name = {curve.name: curve for curve in curves}
    for page, names in PAGES.items():
        shown = [name for name in names if name in rows]
        if not shown:
            continue
        columns = 2 if len(shown) != 3 else 3
        height = -(-len(shown) // columns)
        figure, axes = plt.subplots(
            height, columns, figsize=(5.6 * columns, 5.0 * height), squeeze=False, dpi=110
        )
        for axis in axes.flat[len(shown) :]:
            axis.axis("off")
        for axis, name in zip(axes.flat, shown, strict=False):
            _draw_one(axis, by_name[name], rows[name]["lines"])
        figure.tight_layout(h_pad=2.2, w_pad=2.0)
        figure.savefig(PLOTS / f"{page}.png", metadata={"Software": None})
        plt.close(figure)


def _draw_one(axis: Any, curve: Curve, lines: dict[str, Any]) -> None:
    """One plot."""
    highest = 0.0
    for server, operations in lines.items():
        for i, (label, points) in enumerate(operations.items()):
            sizes = [max(point[0], 1) if curve.name != "slow" else point[0] for point in points]
            costs = [point[1] for point in points]
            highest = max(highest, *costs)
            axis.plot(
                sizes,
                costs,
                color=COLORS[server],
                linestyle=STYLES[i % len(STYLES)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                linewidth=1.8,
                label=f"{server}: {label}",
            )
    if curve.name == "slow":
        axis.set_xscale("symlog", linthresh=4)
        ticks = [point[0] for points in lines["slipstream"].values() for point in points]
        axis.set_xticks(sorted(set(ticks)), [f"{tick:,}" for tick in sorted(set(ticks))])
    else:
        axis.set_xscale("log")
    if curve.name in LOG_COST:
        axis.set_yscale("log")
    else:
        axis.set_ylim(0, highest * 1.1)
    axis.set_title(curve.title, fontsize=11, loc="left", fontweight="bold")
    axis.set_xlabel(curve.x_label)
    axis.set_ylabel(curve.y_label)
    axis.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(
        fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2
    )
