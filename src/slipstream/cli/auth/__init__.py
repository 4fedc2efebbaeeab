"""`slipstream auth`: operators, accounts and users of servers in operator mode, and keys.

    operator, operator_keys                  commands, a module for each group
    account, account_keys, exports, imports, mappings
    user, nkey, jwt
    options, choose, show                    what several of them take, look up and print
    entities                                 operators, accounts and users as they are in the store
    keys, private_files                      their private keys, and files that nobody else reads
    backup, sealed, server_config            what is written of an operator; what is encrypted
    claims                                   what JWTs say, and their signatures

Nothing is asked of a server but by `account push` and `account query`.
"""
