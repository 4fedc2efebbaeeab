"""Names of the bytes that the protocol is made of.

A compiled module imports them, and its `.pxd` declares them as C integers. `ascii.pxd` has the same
names for modules on raw memory.
"""

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
ZERO = 0x30  # the digits follow upon each other
NINE = 0x39
COLON = 0x3A
GREATER = 0x3E
UNDERSCORE = 0x5F
BRACE = 0x7B

LOWER_CASE = 0x20  # the bit that makes a letter lower case
