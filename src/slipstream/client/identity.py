"""Who a program says it is, as its own function finds out at each connect."""

import msgspec


class Identity(msgspec.Struct, kw_only=True):
    """What proves who we are: user and password, a token, or a key with or without a JWT.

    A key signs the server's nonce: give its `seed`, or the `signature` (64 bytes) with the public
    key as `nkey` or in the `jwt`.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    nkey: str = ""
    seed: str = ""
    signature: bytes = b""
