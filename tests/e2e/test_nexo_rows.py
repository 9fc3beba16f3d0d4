"""Every child of the nexo catalogue that misbehaves, against the real host: what is expected comes, and nothing else.

The plugins and what must come of each are the kit's catalogue; the host is plugbay's, the processes are real.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, prepare
from plugbay.conformance.bad_plugins.host_runner import verdict
from tests.e2e.conftest import sampled
from tests.e2e.nexo_port import NexoPort, good_folder, nexo_entries
from tests.support.requirements import requirement


@requirement("nexo:kit-bad-children", "nexo:kit-identity", "nexo:kit-catalogue-drift", "nexo:kit-early-words")
@requirement("nexo:kit-envelope", "nexo:kit-noise", "nexo:kit-allow-list", "nexo:kit-backpressure", "nexo:kit-farewell")
@requirement("nexo:kit-services-refused", "nexo:kit-shapes", "nexo:kit-stream", "nexo:kit-crash")
@pytest.mark.parametrize("entry", sampled(nexo_entries()), ids=lambda entry: f"{entry.row}_{entry.name}")
def test_row(entry: Entry, tmp_path: Path) -> None:
    port = NexoPort(good_folder(tmp_path))
    observed = asyncio.run(port.visit(prepare(entry, tmp_path, FOLDER / "nexo"), entry))
    assert verdict(entry.expect, observed) == ""
    assert port.next_output == {"said": "hello"}
