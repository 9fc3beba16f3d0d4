"""The control plane: its rules (`domain`), REST (`api`), pages (`dashboard`), and the server around them."""
