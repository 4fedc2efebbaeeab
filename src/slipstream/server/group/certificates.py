"""TLS between the servers of a group: each side shows a certificate, and looks at the other one's.

Who dials also compares the host of the route with the names in the certificate.
"""

import ssl

import msgspec

from slipstream.errors import ConfigError
from slipstream.server.group.link import LinkContexts
from slipstream.server.options import TlsOptions
from slipstream.server.tls import server_context


def make_contexts(options: TlsOptions) -> LinkContexts:
    """From `cluster { tls }`. Raises `ConfigError` if a file cannot be used."""
    accepting = server_context(msgspec.structs.replace(options, verify=True))
    try:
        dialling = ssl.create_default_context(cafile=options.ca_file or None)
        dialling.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cluster: tls: a file cannot be used: {error}; give PEM files"
        ) from error
    dialling.minimum_version = accepting.minimum_version
    return LinkContexts(accepting, dialling, frozenset(options.pinned_certs))
