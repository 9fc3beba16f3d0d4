"""`plugbay doctor`: checks of the machine, the configuration and plugins."""
