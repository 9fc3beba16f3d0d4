"""nexo 1.10.0: line JSON-RPC both ways with a resident child; tools, channels, models, hooks, vectors, events."""
