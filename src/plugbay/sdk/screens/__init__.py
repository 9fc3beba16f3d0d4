"""Screens, keys and command lines."""
