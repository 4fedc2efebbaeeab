"""What JetStream's protocol says everywhere: error codes, JSON, times as texts, limits."""
