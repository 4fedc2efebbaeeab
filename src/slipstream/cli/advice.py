"""What to do about an error that does not say so itself.

The client's errors speak to those who program with it; here the commands that help are named.
"""

import re
import shlex
from collections.abc import Mapping

from slipstream.errors import Error
from slipstream.model.error_codes import ErrorCode

# By `err_code` of the JetStream API.
BY_CODE: dict[int, str] = {
    ErrorCode.BAD_REQUEST: f"`slipstream errors lookup {ErrorCode.BAD_REQUEST}` says more",
    ErrorCode.CLUSTER_NOT_AVAIL: "JetStream is busy: try again",
    ErrorCode.CONSUMER_NOT_FOUND: "`slipstream consumer ls STREAM` lists the consumers",
    ErrorCode.NO_MESSAGE_FOUND: "`slipstream stream state STREAM` shows which sequences there are",
    ErrorCode.NOT_ENABLED_FOR_ACCOUNT: (
        "use an account with JetStream: --user, --creds or --context"
    ),
    ErrorCode.STORAGE_RESOURCES_EXCEEDED: "`slipstream account info` shows what is left",
    ErrorCode.STREAM_NAME_EXIST: "`slipstream stream edit` changes a stream",
    ErrorCode.STREAM_NOT_FOUND: "`slipstream stream ls --all` lists the streams",
    ErrorCode.STREAM_SUBJECT_OVERLAP: (
        "`slipstream stream ls --subject SUBJECT` names the stream that stores it"
    ),
    ErrorCode.NOT_ENABLED: (
        "start the server with JetStream: `slipstream serve`, or `nats-server -js`"
    ),
    ErrorCode.CONSUMER_ALREADY_EXISTS: "`slipstream consumer edit` changes a consumer",
}
# By the server's text, for STREAM_INVALID_CONFIG: whatever is wrong with a configuration.
BY_TEXT = {
    "invalid subject": "words between dots, none of them empty; * and > stand for whole words",
    "not supported by this server": "docs/compatibility.md says what a Slipstream server supports",
}
# By the name of the error's class; the first that fits, from the class up.
BY_NAME = {
    "AuthorizationError": "give --user and --password, --creds, --nkey, or another --context",
    "ConnectError": "`slipstream serve` starts one; --server or --context name another",
    "CredentialsError": "check the file that --creds or --nkey names",
    "PermissionsError": "use a user who may: --user, --creds or --context",
    "BucketNotFoundError": "`slipstream kv ls` lists the buckets, `slipstream kv add` makes one",
    "StoreNotFoundError": "`slipstream object ls` lists them, `slipstream object add` makes one",
    "ObjectNotFoundError": "`slipstream object ls BUCKET` lists the objects",
    "KeyDeletedError": "`slipstream kv history BUCKET KEY` shows what it was",
    "KeyNotFoundError": "`slipstream kv ls BUCKET` lists the keys",
    "RevisionMismatchError": "`slipstream kv get BUCKET KEY` shows the revision it has",
    "NoStreamError": "`slipstream stream add` makes a stream that stores the subject",
    "TimeoutError": "--timeout waits longer",
}
_ADVICE_TO_PROGRAMS = re.compile(r"\.? Make it with `create_\w+`")


_PLACE = re.compile(r"\b(STREAM|CONSUMER|BUCKET|KEY)\b")


def one_line(error: Error, named: Mapping[str, str] = {}) -> str:
    """What happened and what to do, without line breaks.

    `named` is what the line calls STREAM, BUCKET and so on: advice names these.
    """
    text = _ADVICE_TO_PROGRAMS.sub("", " ".join(str(error).split()))
    code = getattr(error, "err_code", 0)
    advice = BY_CODE.get(code, "")
    if code == ErrorCode.STREAM_INVALID_CONFIG:
        advice = next((help_for_it for said, help_for_it in BY_TEXT.items() if said in text), "")
    for kind in type(error).__mro__:
        if advice:
            break
        advice = BY_NAME.get(kind.__name__, "")
    advice = _PLACE.sub(lambda place: shlex.quote(named.get(place[0]) or place[0]), advice)
    return f"{text}; {advice}" if advice and advice not in text else text
