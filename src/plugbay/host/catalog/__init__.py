"""Every export by name: declared ones, those known at run time only, and their approval."""
