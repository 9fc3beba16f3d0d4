"""`plugbay manifest`: manifests written from the source of a Python plugin, and kept in step with it."""
