"""Requests to the host, as `ctx` offers them."""
