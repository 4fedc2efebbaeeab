"""Streams as Delta Lake tables, through delta-rs. Needs the extra `delta`."""

from slipstream.extras import require

require("deltalake", extra="delta")  # before the modules that cannot be imported without

from slipstream.tables.delta.part import DeltaPart  # noqa: E402

__all__ = ["DeltaPart"]
