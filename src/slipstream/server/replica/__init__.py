"""The store of a server in a group: what its leader writes, on every server (docs/group.md).

    operations          what happens to files, as bytes: the entries of the group's log
    about               what a follower says of itself to the leader
    group_view          what the engine of a leader knows of its group
    group_disk          the leader's disk: each sync is an entry that a majority has
    store_directory     the files, as the committed entries have made them, on every server
    store_copy          the files on their way to another server, which holds some of them
    replica             host, files and clock of a group on a thread of their own
    relay               clients of a follower, on their way to the leader
    follower_view       what a server that follows knows
    follower_endpoints  what it answers over HTTP
    group_server        a server that leads or follows
    local_group         several of them in one Python process
    free_ports          ports for servers that have to know each other's

The leader's engine and its storage do not know that there is a group: they write files to a disk,
and what they have synced is safe. Whoever leads next opens the same files, as after a crash.
"""
