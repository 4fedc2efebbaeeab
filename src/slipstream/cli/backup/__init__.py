"""`slipstream stream|account backup|restore`: whole backups, and incremental ones."""
