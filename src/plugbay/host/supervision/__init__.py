"""Starts, shares, restarts and ends the instances of each plugin."""
