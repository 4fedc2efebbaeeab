"""`slipstream account`: `command` says what it uses and may use, `report` how it is connected.

`slipstream.cli.backup.account` backs it up.
"""
