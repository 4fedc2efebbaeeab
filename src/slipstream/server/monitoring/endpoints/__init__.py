"""The endpoints: `varz` is answered by the function `varz` of the module `varz`, and so on.

`accounts` has `accountz` and `accstatz`; `absent` has those about what this server does not have.
Beside a function that takes options stand their struct, and the function that reads them from a
query. The modules are loaded with the first request, so nothing is imported here.
"""
