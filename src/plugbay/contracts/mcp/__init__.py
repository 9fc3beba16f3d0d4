"""The Model Context Protocol over one byte stream, in both of its eras."""
