"""The one pump: moves bytes between a byte stream and a protocol machine, and keeps the calls that wait."""
