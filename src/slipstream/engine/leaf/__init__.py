"""Leaf node connections: links to other servers, over which an account's subjects are shared."""
