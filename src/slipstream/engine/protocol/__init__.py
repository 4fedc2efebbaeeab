"""How the API speaks: its errors, JSON as nats-server reads it, and the options of the engine."""
