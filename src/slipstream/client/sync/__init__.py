"""The client for scripts and notebooks: the same API, without a loop and without await."""

from slipstream.client.sync.connect import connect
from slipstream.client.sync.facade import ConnectionFacade, Facade, PendingResult

__all__ = ["ConnectionFacade", "Facade", "PendingResult", "connect"]
