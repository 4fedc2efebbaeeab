"""Streams with their consumers as archives, and back (spec streams.md section 17)."""
