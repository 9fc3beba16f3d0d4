"""Screens and command lines of plugins."""
