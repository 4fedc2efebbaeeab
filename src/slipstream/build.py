"""Which modules are compiled, and which build is running.

The list is the only one: `setup.py` compiles it, a test asserts that each entry is an extension in
the compiled build, and `slipstream --version` prints what it finds. An entry is here because it
lies on the per-message path and a measurement says that compiling it pays (see
docs/performance.md).
"""

import os.path
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

COMPILED_MODULES: tuple[str, ...] = (
    "slipstream.wire.checksum",
    "slipstream.wire.buffer",
    "slipstream.wire.read_buffer",
    "slipstream.wire.frames",
    "slipstream.wire.client_frames",
    "slipstream.wire.leaf_frames",
    "slipstream.wire.server_frames",
    "slipstream.wire.subjects",
    "slipstream.wire.patterns",
    "slipstream.wire.prefix_cache",
    "slipstream.wire.subject_pair",
    "slipstream.wire.headers",
    "slipstream.wire.timestamps",
    "slipstream.model.ack_subject",
    "slipstream.log.record",
    "slipstream.log.columns",
    "slipstream.log.counts",
    "slipstream.log.cached_read",
    "slipstream.log.direct_write",
    "slipstream.log.os_file",
    "slipstream.log.subject_shape",
    "slipstream.log.subject_index",
    "slipstream.log.base",
    "slipstream.log.memory_log",
    "slipstream.log.segment",
    "slipstream.log.segment_reader",
    "slipstream.log.durability",
    "slipstream.log.segment_bytes",
    "slipstream.log.file_log",
    "slipstream.log.commit_entry",
    "slipstream.log.commit_log",
    "slipstream.archive.s2_block",
    "slipstream.archive.entries",
    "slipstream.archive.messages",
    "slipstream.engine.loop.clock",
    "slipstream.engine.loop.timers",
    "slipstream.engine.loop.turn",
    "slipstream.engine.session.message",
    "slipstream.engine.session.routing",
    "slipstream.engine.session.account",
    "slipstream.engine.session.session",
    "slipstream.engine.session.output",
    "slipstream.engine.sharing.stream_imports",
    "slipstream.engine.sharing.replies",
    "slipstream.engine.sharing.service_imports",
    "slipstream.engine.leaf.session",
    "slipstream.engine.commit.commit",
    "slipstream.engine.commit.state_commit",
    "slipstream.engine.stream.dedupe",
    "slipstream.engine.stream.expectations",
    "slipstream.engine.stream.counters",
    "slipstream.engine.stream.ingest_checks",
    "slipstream.engine.stream.fast_batches",
    "slipstream.engine.stream.promises",
    "slipstream.engine.stream.stream",
    "slipstream.engine.stream.direct_answer",
    "slipstream.engine.stream.direct_get",
    "slipstream.engine.consumer.numbers",
    "slipstream.engine.consumer.pending",
    "slipstream.engine.consumer.delivery",
    "slipstream.engine.consumer.consumer",
    "slipstream.engine.consumer.acks",
    "slipstream.engine.consumer.state",
    "slipstream.engine.consumer.life",
    "slipstream.engine.consumer.pull",
    "slipstream.engine.consumer.push",
    "slipstream.engine.sourcing.feed",
    "slipstream.engine.sourcing.storing",
    "slipstream.engine.sourcing.mirror",
    "slipstream.engine.sourcing.source",
    "slipstream.engine.rounds",
    "slipstream.server.histogram",
    "slipstream.server.turns",
    "slipstream.client.payload",
    "slipstream.client.write_buffer",
    "slipstream.client.reply_future",
    "slipstream.client.message",
    "slipstream.client.subscriptions",
    "slipstream.client.link",
    "slipstream.client.requests",
    "slipstream.client.jetstream.message",
    "slipstream.client.jetstream.publish",
    "slipstream.client.jetstream.delivery",
    "slipstream.client.object_store.object_bytes",
    "slipstream.client.arrow.columns",
    "slipstream.client.arrow.column_sink",
    "slipstream.client.arrow.row_block",
    "slipstream.client.arrow.row_publisher",
)


def is_compiled(module: str) -> bool:
    """True if importing `module` takes an extension. Imports nothing: a server says at its start
    which build it is, and has no use for the client's modules."""
    *packages, name = module.split(".")[1:]
    directory = os.path.join(os.path.dirname(__file__), *packages)
    spec = PathFinder.find_spec(name, [directory])
    origin = spec.origin if spec is not None else None
    return origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES))


def describe() -> str:
    """`compiled`, `plain`, or which part is which, for `--version` and the test header."""
    compiled = [module for module in COMPILED_MODULES if is_compiled(module)]
    if not compiled:
        return "plain"
    if len(compiled) == len(COMPILED_MODULES):
        return "compiled"
    missing = sorted(set(COMPILED_MODULES) - set(compiled))
    return "mixed (plain: " + ", ".join(missing) + ")"
