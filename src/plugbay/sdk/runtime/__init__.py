"""The loop inside a plugin: reads, dispatches, runs handlers, answers."""
