"""Streams: what is published is checked, stored, acknowledged, retained and read."""
