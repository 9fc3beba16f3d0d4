"""The event bus of one host, and its snapshots."""
