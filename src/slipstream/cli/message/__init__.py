"""`slipstream pub`, `sub`, `request`, `reply` and `trace`: messages, with or without a stream.

`text` says how a message is shown, also by the commands of streams, consumers and buckets;
`templates` what is filled in where it is published.
"""
