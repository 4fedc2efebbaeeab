"""Names of what a reader of frames finds (docs/protocol/client.md#frames).

Both directions share the numbers. `ClientFrames.next` and `LeafFrames.next` return those of clients
and the errors, `ServerFrames.next` those of servers and `MALFORMED`; all of them `MORE`.
"""

MORE = 0  # nothing whole is left, feed more

# What a step of reading a frame finds, unless it is `MORE`.
WHOLE = 1
WRONG = -1

PUB = 1  # also HPUB: then `has_header` is set
SUB = 2
UNSUB = 3
CONNECT = 4
PING = 5
PONG = 6
INFO = 7
OK = 8
ERR = 9
MSG = 10  # also HMSG: then `body_start` lies after `header_start`

UNKNOWN_OPERATION = -1  # -ERR 'Unknown Protocol Operation', then close
BAD_ARGUMENTS = -2  # close without a word
LINE_TOO_LONG = -3  # -ERR 'maximum control line exceeded', then close
PAYLOAD_TOO_LARGE = -4  # -ERR 'Maximum Payload Violation', then close
MALFORMED = -5  # whatever it is, it is not a NATS server's frame

WORDS_MAX = 5  # of a line whose words are looked at one by one: HMSG has most
SIZE_DIGITS_MAX = 9
SID_DIGITS_MAX = 18

ERROR_TEXTS = {
    UNKNOWN_OPERATION: b"Unknown Protocol Operation",
    BAD_ARGUMENTS: b"",
    LINE_TOO_LONG: b"maximum control line exceeded",
    PAYLOAD_TOO_LARGE: b"Maximum Payload Violation",
}
