"""The SHA-256 hashes of the system call filters in this folder.

Written by scripts/generate.py from scripts/filters; `make check` fails if a filter is stale.
"""

from __future__ import annotations

HASHES = {
    "aarch64.bpf": "d41eca2a37fdeba42b6195e637a7d846246160e57daf49bd91a1b1f435769288",
    "aarch64-offline.bpf": "3ff0d870585549218ff60a90be7e3f87d441ed6cd90ddcf250c78feac95ccf7c",
    "x86_64.bpf": "d3c188ce016ede043214a8b51d85b1d5a10e59a99ef641e0858cec140daf6b18",
    "x86_64-offline.bpf": "f09a5f9e961c4eb89b934875d8ed7bf3fb99b50fdd7cfdd0ee050fc5b83848b3",
}
