"""Load on a real server and a real host, with figures: `python -m tests.load`."""
