"""`plugbay dev` and `plugbay attach`: run a plugin while it is being written."""
