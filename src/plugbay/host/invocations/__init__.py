"""The recorded kind of call: attempts, retries, scratch folders, artifacts, the four kinds of work."""
