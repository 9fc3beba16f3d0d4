"""plugbay.toml, its sections, and the settings and secrets of plugins."""
