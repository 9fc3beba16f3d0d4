"""Every plugin of the vai catalogue that misbehaves, against the real host: what is expected comes, and nothing else.

The plugins and what must come of each are the kit's catalogue; the host is plugbay's, the processes are real.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path

import pytest

from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, prepare
from plugbay.conformance.bad_plugins.host_runner import verdict
from tests.e2e.conftest import sampled
from tests.e2e.vai_port import SECRET, VaiPort, good_vai_folder, vai_entries
from tests.support.requirements import requirement

FORMS = (SECRET, base64.b64encode(SECRET.encode()).decode())


STATUSES = {
    "retryable": "retryable_failure",
    "cancelled_unasked": "cancelled",
    "cancelled_within_grace": "cancelled",
    "never_answers": "cancelled",
    "ignores_cancel_and_forks": "cancelled",
    "overloaded": "retryable_failure",
    "hook_says_ok": "retryable_failure",
}
"""How the record of an invocation is closed that neither succeeded nor failed."""


@requirement("vai:kit-bad-plugins", "vai:kit-hello", "vai:kit-frames", "vai:kit-responses", "vai:kit-deadline")
@requirement("vai:kit-kinds", "vai:kit-crash", "vai:kit-secrets")
@pytest.mark.parametrize("entry", sampled(vai_entries()), ids=lambda entry: entry.name)
def test_row(entry: Entry, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    port = VaiPort(good_vai_folder(tmp_path))
    observed = asyncio.run(port.visit(prepare(entry, tmp_path, FOLDER / "vai"), entry))
    assert verdict(entry.expect, observed) == ""
    assert port.next_output["content"] == [{"type": "text", "text": "hello"}]
    assert port.statuses == [STATUSES.get(entry.name, "succeeded" if observed.code is None else "failed")]
    assert not port.left_in_scratch
    assert [form for form in FORMS if form in port.told + caplog.text] == []
