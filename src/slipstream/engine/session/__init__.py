"""Accounts and clients: subscriptions, permissions, and a connection without its socket."""
