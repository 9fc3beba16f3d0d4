"""kaged: line JSON-RPC with a resident plugin; tools, methods, hooks, roles, knobs, storage, capabilities."""
