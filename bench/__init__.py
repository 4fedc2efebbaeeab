"""Measurements: whole servers against nats-server (`compare`), and parts by themselves."""
