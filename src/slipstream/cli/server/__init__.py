"""`slipstream serve` and `slipstream server`: run a server, check one, look after all of them.

`system` asks servers under `$SYS.REQ`, also for `top`, `account report` and the console.
"""
