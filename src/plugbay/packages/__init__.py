"""Packages: a plugin of any contract as one signed archive, and its way into the plugin folder of a host.

`archive` packs, `signature` and `trust` verify the publisher, `registry` pushes and pulls, `unpack` opens untrusted
archives, `store` and `installer` install. Nothing here starts a plugin or runs code of a package.
"""
