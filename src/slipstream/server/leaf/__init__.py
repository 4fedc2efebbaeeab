"""Leaf node connections: hubs that the server dials, and the port where leaf nodes connect."""

from slipstream.server.leaf.links import LeafLinks

__all__ = ["LeafLinks"]
