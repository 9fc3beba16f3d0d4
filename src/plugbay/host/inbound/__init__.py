"""Requests and notifications of plugins, and the gates they pass."""
