"""Every child of the kaged catalogue that misbehaves, against the real host: what is expected comes, and nothing else.

The plugins and what must come of each are the kit's catalogue; the host is plugbay's, the processes are real.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, prepare
from plugbay.conformance.bad_plugins.host_runner import verdict
from tests.e2e.conftest import sampled
from tests.e2e.kaged_port import KagedPort, good_kaged_folder, kaged_entries
from tests.support.requirements import requirement


@requirement(
    "kaged:kit-bad-children", "kaged:kit-identity", "kaged:kit-envelope", "kaged:kit-noise", "kaged:kit-errors"
)
@requirement("kaged:kit-notifications", "kaged:kit-hooks", "kaged:kit-compaction", "kaged:kit-health")
@requirement("kaged:kit-storage", "kaged:kit-farewell", "kaged:kit-crash", "kaged:kit-context")
@pytest.mark.parametrize("entry", sampled(kaged_entries()), ids=lambda entry: f"{entry.row}_{entry.name}")
def test_row(entry: Entry, tmp_path: Path) -> None:
    port = KagedPort(good_kaged_folder(tmp_path), tmp_path / "state")
    observed = asyncio.run(port.visit(prepare(entry, tmp_path, FOLDER / "kaged"), entry))
    assert verdict(entry.expect, observed) == ""
    assert port.next_output == {"said": "hello"}
