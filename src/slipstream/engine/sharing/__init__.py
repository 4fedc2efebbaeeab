"""Imports of accounts: streams and services of one account that another one takes part in."""
