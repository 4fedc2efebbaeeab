"""An outside proof of what a group is to other people's clients while its leader changes.

Three servers run as processes. Clients of NATS's own libraries (`clients/`, one small program for
each language) publish numbered messages, each with an id until it is acknowledged, to a stream of
their own, and consume it at the same time with a durable consumer and double acknowledgements.
Meanwhile the leader is killed and started again, asked to step down, or sent away with SIGUSR2
(`changes`). No client is started again. At the end the streams are read with another client, and
compared with what the programs were told (`judge`, which knows nothing of servers); `pauses` says
how long nothing was acknowledged.

A program is called with the name of its stream and the URLs of the servers. It prints a line for
each event, with the time in microseconds (`record`), publishes until it is sent a line, and ends
when no more will come. `programs` builds them, where the tools of the language are there.

`python -m tests.group_clients --changes 100` makes as many changes as one likes; `make
group-clients` does so.
"""
