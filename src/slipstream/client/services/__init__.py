"""Services over NATS (ADR-32): named endpoints that can be found, described and measured.

service = await nc.add_service("calculator", "1.0.0")
await service.add_endpoint("double", lambda request: request.data * 2)
"""

from slipstream.client.services.discovery import Discovery
from slipstream.client.services.endpoint import Endpoint
from slipstream.client.services.replies import (
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
)
from slipstream.client.services.request import ServiceError, ServiceRequest
from slipstream.client.services.service import Group, Service

__all__ = [
    "Discovery",
    "Endpoint",
    "EndpointInfo",
    "EndpointStats",
    "Group",
    "Service",
    "ServiceError",
    "ServiceInfo",
    "ServicePing",
    "ServiceRequest",
    "ServiceStats",
]
