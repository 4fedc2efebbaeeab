# The numbers of `operations.py`, as constants of C.

cdef enum:
    MORE = 0
    WHOLE = 1
    WRONG = -1
    PUB = 1
    SUB = 2
    UNSUB = 3
    CONNECT = 4
    PING = 5
    PONG = 6
    INFO = 7
    OK = 8
    ERR = 9
    MSG = 10
    UNKNOWN_OPERATION = -1
    BAD_ARGUMENTS = -2
    LINE_TOO_LONG = -3
    PAYLOAD_TOO_LARGE = -4
    MALFORMED = -5

    WORDS_MAX = 5
    SIZE_DIGITS_MAX = 9
    SID_DIGITS_MAX = 18
