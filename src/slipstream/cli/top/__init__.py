"""`slipstream top`: `command` gathers the figures, `screen` draws them."""
