"""Subjects of questions that a Slipstream server answers beside those of NATS."""

OWN = "$SLIPSTREAM."  # how all of them begin
EXPLAIN = f"{OWN}CONSUMER.EXPLAIN."  # before the names of stream and consumer
