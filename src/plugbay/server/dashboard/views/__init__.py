"""Values of the templates, one module for each area. Pure."""
