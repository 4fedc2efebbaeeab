"""Simulated lives by the number of a seed, which gives the same life again.

A life is of a *server*: one engine over a simulated disk; or of a *group*: of its log alone, or
with engines and clients. What a life is like (size, damage, full disks, time to live) follows from
its seed, so that a row of seeds has some of each.
"""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from slipstream.testing.configuration_simulation import ConfigurationSimulation
from slipstream.testing.driver import HandRunner
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_engines import SimulatedEngines
from slipstream.testing.simulated_group import SimulatedGroup
from slipstream.testing.simulation import Simulation

GROUPS = ((1, False), (2, True), (3, False), (3, True), (5, False))  # size, a register outside
SECONDS_OF_FAULTS = 6.0  # in the life of a group
STEPS = 200  # in the life of a server
SERVERS: tuple[dict[str, bool], ...] = (
    {},
    {"damage": True},
    {"trouble": True},
    {"cold": True},
    {"cold": True, "trouble": True, "letters": True},
    {"ttls": True},
    {"ttls": True, "trouble": True},
    {"ends": True},
    {"letters": True, "damage": True},
    {"letters": True, "trouble": True, "ttls": True},
    {"cold": True, "damage": True},
    {"cold": True, "ends": True},
    {"cold": True, "trouble": True, "ttls": True},
    {"damage": True, "ttls": True},
    {"damage": True, "trouble": True},
    {"cold": True, "letters": True, "damage": True, "ttls": True},
)

WAYS = ("", "crashing", "busy", "failing")  # methods of a `Simulation`


@dataclass
class Outcome:
    """What came of a life: what happened how often, and what was violated, if anything."""

    counts: Counter[str] = field(default_factory=Counter)
    violation: str = ""


Life = Callable[[int], Outcome]


def life_of_server(seed: int) -> Outcome:
    """One server's: of each of `SERVERS` a plain one, one that crashes much, one that is busy as
    well, and one whose disk fails; now and then one whose configuration changes."""
    if seed % 31 == 0:
        return _outcome(f"ConfigurationSimulation({seed})", lambda: _configurations(seed))
    options = SERVERS[seed % len(SERVERS)]
    way = WAYS[seed // len(SERVERS) % len(WAYS)]
    if way == "failing" and "ends" in options:
        way = ""  # a disk that fails does not keep where a stream ends, and then loses the end
    told = ", ".join([str(seed), *(f"{name}=True" for name in options)])
    called = f".{way}()" if way else ""
    return _outcome(f"Simulation({told}){called}", lambda: _server(seed, way, options))


def _configurations(seed: int) -> Counter[str]:
    life = ConfigurationSimulation(seed)
    life.run(STEPS)
    return Counter({"answers kept": len(life.acknowledged)})


def _server(seed: int, way: str, options: dict[str, bool]) -> Counter[str]:
    life = Simulation(seed, None, HandRunner, **options)
    if way:
        getattr(life, way)()
    life.run(STEPS)
    kept = sum("acknowledged" in line or "confirmed" in line for line in life.history)
    return Counter({"crashes": life.crashes, "answers kept": kept})


def life_of_group(seed: int) -> Outcome:
    """Even seeds are of the log alone, odd ones have engines and clients. In some disks are full
    for a while; members of a log alone come and go in some."""
    (size, outside), kind = GROUPS[seed // 2 % len(GROUPS)], seed // 2
    damage, fills, changes = kind % 2 == 1, kind % 3 == 2, kind % 7 > 3
    options = {"damage": damage, "fills": fills, "outside": outside}
    group: SimulatedGroup
    if seed % 2:
        group = SimulatedEngines(seed, size, damage, fills=fills, outside=outside)
    else:
        options |= {"trims": True, "changes": changes}
        group = SimulatedGroup(
            seed, size, damage, trims=True, changes=changes, fills=fills, outside=outside
        )
    told = "".join(f", {name}=True" for name, is_on in options.items() if is_on)
    return _outcome(f"{type(group).__name__}({seed}, {size}{told})", lambda: _group(group))


def _group(group: SimulatedGroup) -> Counter[str]:
    group.run(SECONDS_OF_FAULTS)
    counts = Counter(
        {
            "crashes": sum("crashes" in line for line in group.story),
            "checkpoints installed": group.installs,
        }
    )
    if isinstance(group, SimulatedEngines):
        counts["stores opened by leaders"] = group.opened
        counts["calls"] = len(group.history.calls)
        counts["calls answered"] = group.history.answered
    else:
        counts["appends answered"] = len(group.ledger.answered)
    return counts


def _outcome(told: str, run: Callable[[], Counter[str]]) -> Outcome:
    try:
        return Outcome(run())
    except ViolationError as error:
        return Outcome(violation=f"{told}: {error}")
    except Exception as error:  # an assertion of the engine, or a fault of its own
        return Outcome(violation=f"{told}: {''.join(traceback.format_exception(error))}")
