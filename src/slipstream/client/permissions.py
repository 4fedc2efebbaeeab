"""Reads which publish or subscription a server refused out of its -ERR (spec protocol.md 13)."""

import re

from slipstream.client.errors import PermissionsError

_VIOLATION = re.compile(
    r"permissions violation for (?P<operation>publish(?: with reply of)?|subscription)(?: to)? "
    r'"(?P<subject>(?:[^"\\]|\\.)*)"(?: using queue "(?P<queue>[^"]*)")?',
    re.I,
)


def parse_violation(text: str, server: str) -> PermissionsError | None:
    """The error for a permissions violation; None if `text` is none."""
    found = _VIOLATION.match(text)
    if found is None:
        return None
    operation = "subscribe" if found["operation"].lower() == "subscription" else "publish"
    subject = re.sub(r"\\(.)", r"\1", found["subject"])
    return PermissionsError(operation, subject, found["queue"] or "", text, server)
