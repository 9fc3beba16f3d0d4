"""A server under mixed load for minutes or hours: `python -m tests.soak`."""
