"""Consumers: what was delivered, what was acknowledged, and what is delivered next."""
