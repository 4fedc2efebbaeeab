"""An outside proof of what a group promises: real servers in network namespaces, and what fails.

The failures are those that Jepsen's report and the issues of nats-server name, and others of their
kind. In a round three or five servers of one group start, each in a network namespace of its own
(`network`). Clients publish numbered messages and note every answer (`load`) while something fails
(`faults`): a link, a process, a clock, the power (`disks`), bits on a disk. Then all is mended,
each server leads in turn, and what it has is compared with what was answered (`checker`, which
knows nothing of servers). `rounds` puts these together.

`python -m tests.group_failures --rounds 1000` makes as many rounds as one likes, also with
nats-servers in the place of Slipstream's; `make group-failures` does so.
"""
