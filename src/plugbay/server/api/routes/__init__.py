"""What can be asked, one module per area, each with a `router`."""
