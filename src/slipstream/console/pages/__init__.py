"""One module for each part of the navigation; each lists its `ROUTES`.

A page asks the server through the session's own connection and shows the answer; it keeps nothing.
"""
