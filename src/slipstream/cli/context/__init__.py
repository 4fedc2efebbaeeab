"""`slipstream context`, and the `files` of the `nats` tool that have the connections."""
