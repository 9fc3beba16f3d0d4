"""Plugins on other machines: the nodes that run them, and the supervisor of a gateway that calls them over NATS."""
