# The bytes of `ascii.py`, as constants of C.

cdef enum:
    TAB = 0x09
    LF = 0x0A
    FF = 0x0C
    CR = 0x0D
    SPACE = 0x20
    QUOTE = 0x22
    DOLLAR = 0x24
    STAR = 0x2A
    PLUS = 0x2B
    MINUS = 0x2D
    DOT = 0x2E
    ZERO = 0x30
    NINE = 0x39
    COLON = 0x3A
    GREATER = 0x3E
    UNDERSCORE = 0x5F
    BRACE = 0x7B

    LOWER_CASE = 0x20
