"""Options of the connection from the environment, in the variables that the `nats` tool reads.

A pipeline's code says what it reads, and not where: the same file runs against a server on a laptop
and against a cluster. `slipstream pipeline run` sets these variables for the code that it runs, and
so can anybody who calls `spark-pipelines` by hand:

    NATS_URL=nats://nats.example:4222 NATS_CREDS=/etc/nats/etl.creds spark-pipelines run
"""

import os
from collections.abc import Mapping

# Variable -> option of the source and the sink.
VARIABLES = {
    "NATS_URL": "servers",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CREDS": "credentials",
    "NATS_NKEY": "nkeySeed",
    "NATS_CA": "tlsCa",
    "NATS_CERT": "tlsCertificate",
    "NATS_KEY": "tlsKey",
    "NATS_INBOX_PREFIX": "inboxPrefix",
    "SLIPSTREAM_TLS_FIRST": "tlsHandshakeFirst",
    "SLIPSTREAM_JS_DOMAIN": "domain",
}


def from_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options that the environment sets; a user without a password is a token, as in `nats`."""
    found = os.environ if environment is None else environment
    options = {option: found[name] for name, option in VARIABLES.items() if found.get(name)}
    if "user" in options and "password" not in options:
        options.setdefault("token", options.pop("user"))
    return options


def to_environment(options: Mapping[str, str]) -> dict[str, str]:
    """The variables that say these options; those that say nothing are empty."""
    return {name: options.get(option, "") for name, option in VARIABLES.items()}
