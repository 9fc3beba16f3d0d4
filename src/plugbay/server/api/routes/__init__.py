"""REST routes, one module per area, each with a `router`."""
