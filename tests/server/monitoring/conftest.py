"""The fixture of tests that compare with nats-server."""

from tests.server.monitoring.twins import twins

__all__ = ["twins"]
