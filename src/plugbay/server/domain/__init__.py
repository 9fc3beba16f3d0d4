"""Domain rules of the control plane: tenants, packages, bindings, invocations, conversations, hooks.

HTTP is in `server.api`, SQL in `store`.
"""
