"""The published contracts as pure protocol machines, both roles, and their manifest formats.

Each contract is a folder with the same four files: `messages` (shapes on the wire), `machine` (states and moves),
`manifest` (the file a plugin ships), `errors` (wire errors to and from our codes). MCP has a machine per role.
"""
