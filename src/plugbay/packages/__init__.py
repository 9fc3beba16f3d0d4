"""Packages: a plugin of any contract as one signed file, and how it gets from its author into a host's folder.

`archive` packs, `signature` and `trust` say whose it is, `registry` carries it, `unpack` opens what strangers sent,
`store` and `installer` put it where hosts find it. Nothing here starts a plugin or runs anything of a package.
"""
