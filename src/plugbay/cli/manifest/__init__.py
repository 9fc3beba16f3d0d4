"""`plugbay manifest`: manifests generated from the source of a Python plugin."""
