"""`slipstream stream`: each module has some of its commands.

`options` says what can be set on the line, `tables` how streams are shown, `copy` how messages come
along. `slipstream.cli.backup.stream` has `backup` and `restore`.
"""
