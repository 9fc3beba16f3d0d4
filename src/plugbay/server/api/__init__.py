"""The HTTP edge: requests become calls of the gateway, what it says becomes answers.

Owns shapes on the wire, who may ask, and how much. Decides nothing else.
"""
