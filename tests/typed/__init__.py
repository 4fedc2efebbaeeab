"""Programs of users that nothing runs: `tests/test_types.py` has mypy read them.

`assert_type` says what a checker knows; an ignored error is one that a checker has to find.
"""
