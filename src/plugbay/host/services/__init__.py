"""What the host does for plugins that ask: memory, vectors, hooks. Each service knows no contract and no process."""
