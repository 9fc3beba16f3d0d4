"""Finds plugins in folders and in plugbay.toml."""
