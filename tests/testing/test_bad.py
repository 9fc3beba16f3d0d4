"""The bad plugins of the conformance kit as test helpers."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, SyncHost
from plugbay.testing import bad_plugin


@pytest.mark.parametrize("contract", ["rune", "nexo", "kaged", "ainb", "vai"])
def test_every_contract_has_a_good_one_to_compare_with(contract: str, tmp_path: Path) -> None:
    name = {"rune": "rune/good"}.get(contract, f"{contract}/good")
    good = bad_plugin(name, tmp_path)
    assert good.expect == "succeeded" and good.path.is_dir()


def test_a_bad_plugin_ends_a_call_as_it_says(tmp_path: Path) -> None:
    bad = bad_plugin("nexo/dies_in_call", tmp_path)
    with SyncHost.load(bad.path, grant_all=True) as host, pytest.raises(CallFailed) as caught:
        host.call(bad.tool, bad.input)
    assert caught.value.code == bad.expect == "crashed"


@pytest.mark.parametrize(
    ("name", "says"),
    [("nexo/dies_in_cal", "there is dies_in_call"), ("dies_in_call", "write contract/name"), ("mcp/x", "one of rune")],
)
def test_an_unknown_name_is_answered_with_similar_ones(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        bad_plugin(name, tmp_path)
