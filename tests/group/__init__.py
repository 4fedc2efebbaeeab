"""The state machines of a group of servers, one by one; whole groups are in tests/testing."""
