"""The published contracts as pure protocol machines, both roles, and their manifest formats.

Each contract is a folder with the same five files: `messages` (shapes on the wire), `machine` (states and transitions),
`manifest` (the file in a plugin's folder), `errors` (error codes on the wire and ours) and `contract` (all of it as one
value, for the registry). MCP has a machine for each role.
"""
