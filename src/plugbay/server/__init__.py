"""The control plane: rules (`domain`), REST (`api`), operator pages (`dashboard`), and the server process."""
