"""Mirrors and sources: streams that take their messages over from other streams."""
