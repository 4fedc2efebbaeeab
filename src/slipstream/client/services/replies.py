"""What services answer on ``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS`` (ADR-32)."""

from typing import Any

import msgspec

PING_TYPE = "io.nats.micro.v1.ping_response"
INFO_TYPE = "io.nats.micro.v1.info_response"
STATS_TYPE = "io.nats.micro.v1.stats_response"


class ServicePing(msgspec.Struct, kw_only=True):
    """Who is there."""

    type: str = PING_TYPE
    name: str
    id: str
    version: str
    metadata: dict[str, str] = {}


class EndpointInfo(msgspec.Struct, kw_only=True):
    """An endpoint, and where it listens."""

    name: str
    subject: str
    queue_group: str = ""
    metadata: dict[str, str] = {}


class ServiceInfo(ServicePing, kw_only=True):
    """What a service is for, and its endpoints."""

    type: str = INFO_TYPE
    description: str = ""
    endpoints: list[EndpointInfo] = []


class EndpointStats(msgspec.Struct, kw_only=True):
    """What an endpoint has done; times are nanoseconds, `data` is the service's own."""

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0
    data: Any = None


class ServiceStats(ServicePing, kw_only=True):
    """What a service has done since `started` (RFC 3339, UTC)."""

    type: str = STATS_TYPE
    started: str = ""
    endpoints: list[EndpointStats] = []
