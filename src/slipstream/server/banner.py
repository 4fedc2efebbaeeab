"""What a server says while it starts, in the order and words that scripts look for."""

import os
import string
import sys

from slipstream import __version__, build
from slipstream.engine.engine import Engine
from slipstream.engine.protocol.options import API_LEVEL, VERSION
from slipstream.server.listeners import bracketed
from slipstream.server.logger import Logger
from slipstream.server.options import ServerOptions
from slipstream.server.passwords import is_hash

_NODE_LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_UNITS = ("KB", "MB", "GB", "TB", "PB")
_SHARE_OF_MACHINE = 0.75  # what JetStream may use where nothing else is said
PAYLOAD_DISCOURAGED = 8 * 1024 * 1024


def announce(log: Logger, engine: Engine, options: ServerOptions) -> None:
    """Who is starting, and what about its configuration deserves a warning."""
    log.info(f"Starting nats-server (slipstream {__version__}, {build.describe()} build)")
    log.info(f"  Version:  {VERSION}")
    log.info("  Git:      [not set]")
    log.debug(f"  Python:   {'.'.join(map(str, sys.version_info[:3]))}")
    log.info(f"  Name:     {engine.server_name}")
    if options.jetstream.enabled:
        log.info(f"  Node:     {node_id(engine.server_name)}")
    log.info(f"  ID:       {engine.server_id}")
    if options.config_file:
        log.info(f"Using configuration file: {options.config_file} ({options.config_digest})")
    warn_about(log, options)


def warn_about(log: Logger, options: ServerOptions) -> None:
    """What is allowed but unwise."""
    if options.is_open_to_all:
        log.warn(
            "No users are configured and the server listens on all interfaces: who reaches it "
            "can read, change and delete everything. Configure authorization or accounts, or "
            "listen on one address (-a 127.0.0.1, host)"
        )
    if _has_plain_password(options):
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")
    if options.limits.max_payload > PAYLOAD_DISCOURAGED:
        log.warn(
            f"Maximum payloads over {size(PAYLOAD_DISCOURAGED)} are generally discouraged "
            "and could lead to poor performance"
        )


def _has_plain_password(options: ServerOptions) -> bool:
    users = list(options.authorization.users)
    for account in options.accounts.values():
        users += account.users
    secrets = [user.password for user in users]
    secrets += [options.authorization.password, options.authorization.token]
    return any(secret and not is_hash(secret) for secret in secrets)


def announce_jetstream(log: Logger, engine: Engine, options: ServerOptions, seconds: float) -> None:
    """JetStream has started, with what was there."""
    js = options.jetstream
    log.info("---------------- JETSTREAM ----------------")
    log.info(f"  Strict:          {str(js.strict).lower()}")
    log.info(f"  Max Memory:      {size(memory_for_streams(options))}")
    log.info(f"  Max Storage:     {size(disk_for_streams(options))}")
    log.info(f'  Store Directory: "{js.store_dir}/jetstream"')
    if js.log_dir:
        log.info(f'  Commit Log:      "{js.log_dir}/commit-log"')
    if js.domain:
        log.info(f"  Domain:          {js.domain}")
    log.info(f"  API Level:       {API_LEVEL}")
    log.info(f"  Durability:      {_durability(options)}")
    log.info("-------------------------------------------")
    for account in engine.accounts.values():
        if account.jetstream is not None:
            for stream in account.jetstream.streams.values():
                log.info(
                    f"  Restored {stream.log.messages:,} messages and {len(stream.consumers)} "
                    f"consumers of stream '{account.name} > {stream.name}'"
                )
    log.info(f"Took {seconds * 1000:.3f}ms to start JetStream")


def _durability(options: ServerOptions) -> str:
    if options.jetstream.sync_always:
        return "on disk before acknowledged"
    return f"on disk within {options.jetstream.sync_interval / 1e9:g}s of the acknowledgement"


def announce_listener(log: Logger, options: ServerOptions, port: int) -> None:
    """Clients can connect."""
    log.info(f"Listening for client connections on {bracketed(options.host)}:{port}")
    if options.tls is not None:
        also = " (and clients without it are let in)" if options.allow_non_tls else ""
        log.info(f"TLS required for client connections{also}")
    if options.proxy_protocol:
        log.info("PROXY protocol enabled for client connections")


def memory_for_streams(options: ServerOptions) -> int:
    """Bytes of memory that JetStream may use: as configured, or a share of what there is."""
    configured = options.jetstream.max_memory_store
    if configured >= 0:
        return configured
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE_OF_MACHINE)


def disk_for_streams(options: ServerOptions) -> int:
    """Bytes of disk that JetStream may use: as configured, or a share of what is free."""
    configured = options.jetstream.max_file_store
    if configured >= 0:
        return configured
    directory = os.path.abspath(options.jetstream.store_dir)
    while not os.path.exists(directory):  # it may not have been made yet
        directory = os.path.dirname(directory)
    disk = os.statvfs(directory)
    return int(disk.f_bavail * disk.f_frsize * _SHARE_OF_MACHINE)


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.2f} {_UNITS[power - 1]}"


def node_id(name: str) -> str:
    """Eight letters and digits that stand for a server name."""
    import hashlib

    digest = hashlib.sha256(name.encode()).digest()
    return "".join(_NODE_LETTERS[byte % len(_NODE_LETTERS)] for byte in digest[:8])
