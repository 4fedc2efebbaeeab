"""Schedules: every header, every refusal, and what is stored.

Each function is run on servers of its own, in order. Nothing here waits for a schedule that is due
later; `test_schedule_story` does.
"""

from collections.abc import Iterator

from tests.compatibility.batch_corpus import batched, look
from tests.compatibility.corpus import SECOND, Entry, api, create, pub, update

FAR = "@at 2100-01-01T00:00:00Z"


def plan(subject: str, schedule: str, target: str = "s.target", **headers: str) -> Entry:
    """A schedule; header names are written with _ for -."""
    return pub(subject, Nats_Schedule=schedule, Nats_Schedule_Target=target, **headers)


def schedule_configurations() -> Iterator[Entry]:
    """Which streams may have schedules."""
    for options in (
        {}, {"storage": "memory"}, {"discard": "new"}, {"pedantic": True},
        {"pedantic": True, "allow_rollup_hdrs": True}, {"deny_purge": True},
        {"deny_purge": True, "allow_rollup_hdrs": True}, {"retention": "interest"},
        {"retention": "workqueue"}, {"allow_msg_ttl": True}, {"persist_mode": "async"},
        {"mirror": {"name": "M"}, "subjects": []}, {"sources": [{"name": "M"}]},
        {"subject_delete_marker_ttl": SECOND}, {"max_msgs_per_subject": 1},
        {"discard": "new", "subject_delete_marker_ttl": 5}, {"allow_atomic": True},
        {"mirror": {"name": "M"}, "subjects": [], "allow_atomic": True},
    ):  # fmt: skip
        yield create("S", **{"subjects": ["s.>"], "allow_msg_schedules": True, **options})
        yield api("STREAM.DELETE.S")
    yield create("U", subjects=["u.>"])
    yield plan("u.a", FAR, "u.b")
    yield update("U", subjects=["u.>"], allow_msg_schedules=True)
    yield plan("u.a", FAR, "u.b")
    yield update("U", subjects=["u.>"])
    yield update("U", subjects=["u.>"], allow_msg_schedules=True, deny_purge=True)


def schedule_patterns() -> Iterator[Entry]:
    """Every way to write when."""
    yield create("S", subjects=["s.>"], allow_msg_schedules=True, max_msgs_per_subject=1)
    for text in _PATTERNS:
        yield plan("s.a", text)
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "Nowhere/City", "", " ", "CET",
                 "europe/berlin", "../etc/passwd", "+01:00", "EST", "Etc/GMT+3"):  # fmt: skip
        for text in ("0 0 5 1 1 *", "@yearly", FAR, "@every 10h"):
            yield plan("s.a", text, Nats_Schedule_Time_Zone=zone)
    yield from look("S", 3)


_PATTERNS = (
    FAR, "@at 2100-01-01T00:00:00+02:00", "@at 2100-01-01T00:00:00.5Z", "@at 2100-01-01", "@at ",
    "@at", "@at  2100-01-01T00:00:00Z", "@at 2100-01-01T00:00:00Z ", "@at 1e9", "@At " + FAR[4:],
    "@every 10h", "@every 1h30m", "@every 999ms", "@every 0s", "@every -1h", "@every 1d", "@every",
    "@every  10h", "@every 36000", "@every 1e3s", "@every 2562047h", "@every 9999999h",
    "@yearly", "@annually", "@monthly", "@weekly", "@reboot", "@Yearly", "@yearly ",
    "0 0 5 1 1 *", "0 0 5 1 *", "0 0 5 1 1 * 2100", "0 0 5 1 jan *", "0 0 5 1 JAN *",
    "0 0 5 1 January *",
    "0 0 5 1 1 sun", "0 0 5 1 1 7", "0 0 5 1 1 6", "0 0 5 1 1 mon-fri", "0 0 5 1 1 fri-mon",
    "0 0 5 ? 1 ?", "0 0 5 * 1 ?", "0 0 5 L 1 *", "0 0 5 1W 1 *", "0 0 5 1 1 1#1", "0 0 5 1/2 1 *",
    "0 0 5 1-9/3 1 *", "0 0 5 */40 1 *", "0 0 5 */0 1 *", "0 0 5 1-9/0 1 *", "0 0 5 9-1 1 *",
    "60 0 5 1 1 *", "0 60 5 1 1 *", "0 0 24 1 1 *", "0 0 5 32 1 *", "0 0 5 0 1 *", "0 0 5 1 13 *",
    "0 0 5 1 0 *", "0 0 5 31 2 *", "0 0 5 30 2 *", "0 0 5 29 2 *", "0,1,2 0 5 1 1 *",
    "0,1,,2 0 5 1 1 *", ",1 0 5 1 1 *", "1, 0 5 1 1 *", "1- 0 5 1 1 *", "-1 0 5 1 1 *",
    "1-2-3 0 5 1 1 *", "1/2/3 0 5 1 1 *", "*/ 0 5 1 1 *", "/5 0 5 1 1 *", "*-5 0 5 1 1 *",
    "?-5 0 5 1 1 *", "*,5 0 5 1 1 *", "*/5,3 0 5 1 1 *", "+5 0 5 1 1 *", "05 0 5 1 1 *",
    "  0  0 5 1 1 * ",
    "0\t0 5 1 1 *", "TZ=UTC 0 0 5 1 1 *", "CRON_TZ=UTC 0 0 5 1 1 *", "x", "* * * * *",
    "0 0 5 1 1 0-7",
    "0 0 5 1 jan-mar *", "0 0 5 1 1 sun-sat/2", "0 0 5 1 x *", "0 0 5 1-jan 1 *", "0x1 0 5 1 1 *",
    "99999999999 0 5 1 1 *", "0 0 5 jan 1 *",
)  # fmt: skip


def schedule_headers() -> Iterator[Entry]:
    """What else a schedule may say, and which fault of several is told."""
    for name, options in (
        ("S", {}),
        ("T", {"allow_msg_ttl": True}),
        ("OFF", {"allow_msg_schedules": False}),
    ):
        low = name.lower()
        yield create(name, **{"subjects": [f"{low}.>"], "allow_msg_schedules": True, **options})
        yield pub(f"{low}.data", A="b")
        for target in (
            f"{low}.b",
            f"{low}.a",
            "x.b",
            f"{low}.*",
            f"{low}.>",
            f"{low}..b",
            "",
            " ",
            low,
        ):
            yield plan(f"{low}.a", FAR, target)
        yield pub(f"{low}.a", Nats_Schedule=FAR)
        target = f"{low}.b"
        for headers in (
            {"Nats_Schedule_TTL": "1h"}, {"Nats_Schedule_TTL": "x"}, {"Nats_Schedule_TTL": ""},
            {"Nats_Schedule_TTL": "0"}, {"Nats_Schedule_TTL": "never"}, {"Nats_TTL": "1h"},
            {"Nats_TTL": "x"},
            {"Nats_Schedule_TTL": "500ms"},
            {"Nats_Schedule_Source": f"{low}.data"}, {"Nats_Schedule_Source": f"{low}.none"},
            {"Nats_Schedule_Source": f"{low}.a"}, {"Nats_Schedule_Source": f"{low}.b"},
            {"Nats_Schedule_Source": "x.y"}, {"Nats_Schedule_Source": f"{low}.*"},
            {"Nats_Schedule_Source": ""}, {"Nats_Schedule_Source": f"{low}..a"},
            {"Nats_Schedule_Rollup": "sub"}, {"Nats_Schedule_Rollup": "all"},
            {"Nats_Schedule_Rollup": ""},
            {"Nats_Schedule_Rollup": "SUB"}, {"Nats_Schedule_Rollup": "x"},
            {"Nats_Rollup": "sub"}, {"Nats_Rollup": "SUB"}, {"Nats_Rollup": "all"},
            {"Nats_Rollup": "x"},
            {"Nats_Rollup": ""}, {"Nats_Msg_Id": "m"}, {"Nats_Msg_Id": "m"},
            {"Nats_Expected_Last_Subject_Sequence": "0"}, {"Nats_Incr": "1"},
            {"Nats_Scheduler": f"{low}.x"}, {"Nats_Schedule_Next": "purge"},
            {"Nats_Scheduler": f"{low}.x", "Nats_Schedule_Next": "purge"},
            {"Nats_Scheduler": f"{low}.a", "Nats_Schedule_Next": "purge"},
            {"Nats_Schedule_TTL": "x", "Nats_Schedule_Source": "x"},
            {"Nats_Schedule_TTL": "x", "Nats_Schedule_Rollup": "x"},
            {"Nats_Schedule_Source": "x", "Nats_Schedule_Rollup": "x"},
            {"Nats_Schedule_Time_Zone": "x", "Nats_Schedule_TTL": "x"},
            {"Nats_Schedule_Time_Zone": "x", "Nats_Schedule_Source": "x"},
            {"Nats_Schedule_Time_Zone": "x", "Nats_Rollup": "all"},
            {"Nats_Schedule_Source": "x", "Nats_Rollup": "all"},
            {"Nats_Schedule_TTL": "x", "Nats_TTL": "x"}, {"Nats_Rollup": "all", "Nats_TTL": "x"},
        ):  # fmt: skip
            yield plan(f"{low}.a", FAR, target, **headers)
        for text, to in (("x", "x.b"), (FAR, "x.b")):
            for headers in (
                {"Nats_Schedule_TTL": "x"}, {"Nats_Schedule_Source": "x"},
                {"Nats_Schedule_Rollup": "x"}, {"Nats_Schedule_Time_Zone": "x"},
                {"Nats_Rollup": "all"},
            ):  # fmt: skip
                yield plan(f"{low}.a", text, to, **headers)
        yield from look(name, 25)


def cancelling() -> Iterator[Entry]:
    """How a schedule is replaced and ended."""
    yield create("S", subjects=["s.>"], allow_msg_schedules=True)
    yield plan("s.a", FAR, A="1")
    yield plan("s.a", FAR, A="2")
    yield pub("s.plain")
    for scheduler, following in (
        ("s.none", "purge"), ("s.plain", "purge"), ("s.done", "purge"), ("s.*", "purge"),
        ("s.a", "x"),
        ("x.a", "purge"), ("s.a", "2100-01-01T00:00:00Z"), ("s.a", ""), ("", "purge"),
        ("s..a", "purge"),
        ("s.>", "purge"), ("s.a", "PURGE"), ("s.a", "purge"), ("s.a", "purge"),
    ):  # fmt: skip
        yield pub("s.done", Nats_Scheduler=scheduler, Nats_Schedule_Next=following)
        yield from look("S", 0)
    yield plan("s.a", FAR)
    yield pub("s.a")
    yield pub("s.done", Nats_Scheduler="s.a", Nats_Schedule_Next="purge")
    yield plan("s.a", FAR)
    yield pub("s.a", Nats_Rollup="sub")
    yield from look("S", 30)


def schedules_in_batches() -> Iterator[Entry]:
    """Schedules within an atomic batch."""
    yield create("S", subjects=["s.>"], allow_msg_schedules=True, allow_atomic=True)
    headers = {"Nats_Schedule": FAR, "Nats_Schedule_Target": "s.t"}
    yield batched("s.a", "a", 1, **headers)
    yield batched("s.b", "a", 2, "1", **headers)
    yield batched("s.a", "b", 1, **headers)
    yield batched("s.a", "b", 2, "1", **headers)
    yield batched("s.c", "c", 1)
    yield batched("s.d", "c", 2, "1", Nats_Schedule="x")
    yield from look("S", 6)


PARTS = (
    schedule_configurations, schedule_patterns, schedule_headers, cancelling, schedules_in_batches,
)  # fmt: skip
