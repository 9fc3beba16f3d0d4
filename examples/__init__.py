"""Real plugins of every contract, and the demo that calls them."""
