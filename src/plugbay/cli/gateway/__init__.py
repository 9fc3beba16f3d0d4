"""The command line of the control plane: `plugbay org list`, `plugbay binding create` and the like."""
