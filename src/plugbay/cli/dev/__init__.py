"""`plugbay dev` and `plugbay attach`: run a plugin while its author writes it."""
