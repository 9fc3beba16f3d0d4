"""Pure values that every layer speaks: ids, specs, operations, events, errors, lifecycle.

Nothing here does I/O, reads a clock or draws a random number.
"""
