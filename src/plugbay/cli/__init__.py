"""What a person types and sees: `plugbay …`. Data goes to stdout, everything else to stderr."""
