"""Bytes to messages and back: framing and strict JSON.

Nothing here does I/O, reads a clock or knows a contract. What a peer sends wrong comes out as a value, or as
`Malformed` from the functions that decode one frame.
"""
