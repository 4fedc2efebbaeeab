"""What JetStream's protocol says to servers and clients alike, each thing typed once."""
