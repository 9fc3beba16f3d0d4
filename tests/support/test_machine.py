"""The marks skip nothing for root, and only what is missing for another user."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from plugbay.host.confinement.notes import LIMITS_DEGRADED
from tests.support import machine
from tests.support.machine import needs_cgroups, needs_low_ports, needs_root


def test_root_skips_nothing() -> None:
    skipped = [mark.args[0] for mark in (needs_root, needs_cgroups, needs_low_ports)]
    assert skipped[0] is (os.geteuid() != 0)
    assert skipped[0] or not any(skipped)


@needs_root
def test_a_test_that_needs_root_can_give_a_file_away(tmp_path: Path) -> None:
    os.chown(tmp_path, 2_000_000_001, -1)


@needs_low_ports
def test_a_test_that_needs_low_ports_can_listen_there() -> None:
    with socket.create_server(("127.254.1.1", 1)):
        pass


@pytest.mark.parametrize("state", ["full", "full (v1)", "degraded"])
def test_expectations_follow_the_machine(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(machine, "limits_state", lambda: state)
    notes = state == "degraded"
    assert machine.confined_counters(noise=2) == ({LIMITS_DEGRADED: 1, "noise": 2} if notes else {"noise": 2})
    text = f"one\np: {LIMITS_DEGRADED}: no limits\np confined, limits degraded · granted\n"
    assert machine.without_limits_notes(text) == ("one\np confined · granted\n" if notes else text)
