"""`slipstream bench`, `latency` and `rtt`: how much a server carries, and how long it takes."""
