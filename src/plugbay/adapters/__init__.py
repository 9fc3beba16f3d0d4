"""Plugins of any contract in hosts of any other: the mapping, the folder for the host, and the running adapter."""
