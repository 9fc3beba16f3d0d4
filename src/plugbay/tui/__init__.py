"""The terminal user interface: screens, states and logs of plugins."""
