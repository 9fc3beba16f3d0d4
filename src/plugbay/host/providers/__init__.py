"""Plugins as backends of services: hooks and compaction for agents, models, vectors, channels."""
