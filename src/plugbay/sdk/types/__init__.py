"""From annotations to shapes, schemas and arguments, without `typing`."""
