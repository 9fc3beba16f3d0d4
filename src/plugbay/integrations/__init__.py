"""Adapters: the tools of a host as tools of an agent framework. Each module needs its framework, which is an extra."""
