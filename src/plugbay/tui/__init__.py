"""What a person sees of plugins in a terminal: their screens, their states, their logs."""
