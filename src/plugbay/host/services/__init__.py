"""The services of the host for plugins: memory, vectors, hooks and others. No service knows a contract or a process."""
