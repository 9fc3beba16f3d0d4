"""The process's streams and signals, and the contract that the host speaks."""
