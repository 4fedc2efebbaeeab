"""`slipstream consumer` and `slipstream why`: each module has some of the commands.

`options` says what can be set on the line, `tables` how consumers are shown.
"""
