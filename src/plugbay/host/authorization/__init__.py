"""Whether a call or a request of a plugin is allowed: decisions on values."""
