"""What a manifest of ainb lets a plugin do is filled into its scenarios."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from plugbay.conformance.engine.ainb_facts import facts
from plugbay.conformance.engine.manifests import ainb_manifest
from plugbay.contracts.ainb.manifest import FILE_NAME, parse


def known(root: Path, **sections: Any) -> dict[str, Any]:
    root = root / "p"
    root.mkdir()
    (root / FILE_NAME).write_text(ainb_manifest("p", sections), "utf-8")
    spec, problems = parse((root / FILE_NAME).read_text("utf-8"), root)
    assert spec is not None, problems
    return dict(facts(spec))


def test_a_manifest_that_asks_for_nothing_allows_nothing(tmp_path: Path) -> None:
    found = known(tmp_path)
    assert found["manifest"] == {"plugin": {"name": "p", "version": "1.0.0", "abi_version": 2}}
    assert (found["publications"], found["bus"], found["read_roots"], found["gated_methods"]) == ([], [], [], [])
    assert found["init"]["params"]["granted_capabilities"] == []


def test_what_is_asked_for_is_granted_by_name_and_allows_its_methods(tmp_path: Path) -> None:
    capabilities = {"network": ["example.org"], "event_bus": ["usage.*"], "read_paths": ["~/notes"]}
    found = known(tmp_path, capabilities=capabilities, provides={"snapshots": ["usage.day"]})
    assert found["init"]["params"]["granted_capabilities"] == ["event_bus", "network", "read_paths"]
    assert found["init_ungranted"]["params"]["granted_capabilities"] == []
    assert found["bus"] == ["usage.*"]
    assert found["may_publish"] == ["usage.day", "ui.close_request", "ui.state"]
    assert found["read_roots"] == [os.path.expanduser("~/notes")]
    assert "host/network/fetch" in found["gated_methods"]
    assert "host/fs/read_file" in found["gated_methods"]


def test_the_whole_bus_is_every_topic(tmp_path: Path) -> None:
    found = known(tmp_path, capabilities={"event_bus": True})
    assert found["bus"] == ["*"]
    assert "host/network/fetch" not in found["gated_methods"]


def test_the_manifest_is_where_the_plugin_lies_or_nowhere(tmp_path: Path) -> None:
    found = known(tmp_path)
    assert Path(found["init"]["params"]["manifest_path"]).is_file()
    assert not Path(found["init_elsewhere"]["params"]["manifest_path"]).exists()
