"""Taps on the wire, recordings, and the redaction of secrets."""
