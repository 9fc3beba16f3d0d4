"""The SHA-256 hashes of the system call filters in this folder.

Written by scripts/generate.py from scripts/filters; `make check` fails if a filter is stale.
"""

from __future__ import annotations

HASHES = {
    "aarch64.bpf": "7d8f0a58e14195b89c0b62a71932c44e499b0cb78a994ff4f05eaee7190e52dd",
    "aarch64-offline.bpf": "24ad891af8d84d5bb52934e3afe2e5a7079b9c71bb2a86b33ec4ea2ead5f5865",
    "x86_64.bpf": "c37c8e86ccd412274a9d3d6c3c5727bc5fe60d0d3bf0434f7fca2681fc0070fc",
    "x86_64-offline.bpf": "913efc7e3eb1ae1643bb2b2c2a64b18423051be6223f9246c67b5cd39883786b",
}
