"""A plugin under each contract: names, manifest, machine, dispatch."""
