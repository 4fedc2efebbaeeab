"""Messages as Arrow record batches: scans of a stream, and fetches from a consumer."""
