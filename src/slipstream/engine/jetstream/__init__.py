"""JetStream of one account: its streams, what they may use, and what is reported of them."""
