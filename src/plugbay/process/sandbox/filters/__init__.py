"""The system call filters, built from `filter_rules.py`, and what their bytes must hash to (SHA-256).

Written by scripts/generate.py; `make check` fails when a rule and a filter disagree.
"""

from __future__ import annotations

HASHES = {
    "aarch64.bpf": "3deeb08b03eff8d92f510ee601cb9709bb2f403d81b99cd99738fefe019d6e6b",
    "aarch64-offline.bpf": "b056a206b655f6f867be7496b1cbc8694c2cb44c435dd5829d1edd2a63bed91e",
    "x86_64.bpf": "46a05bc0829b03643ab5e34b86f1d5ab0ce401ce4697808829d906fd3e13c308",
    "x86_64-offline.bpf": "e4bbd52a3e1cfd4ef490e37375e306d4f3e53d30a2e8e586771053717073ea0e",
}
