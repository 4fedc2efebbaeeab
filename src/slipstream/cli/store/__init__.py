"""`slipstream store` and `slipstream check`: store directories, while no server runs."""
