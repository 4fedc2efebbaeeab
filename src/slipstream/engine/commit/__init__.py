"""The commit: how what was appended becomes durable, in which batches and in which order."""
