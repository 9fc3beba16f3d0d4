"""Each limit of a plugin has a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plugbay.host.admin.limits import CONTRACT, HOST, MANIFEST, OPERATOR, Limit, limits_of
from plugbay.host.bindings import Bindings, Options
from plugbay.host.config.config import parse
from plugbay.host.discovery.folders import inspect
from tests.support.kaged import write_kaged_plugin
from tests.support.requirements import requirement

OPERATED = """
[plugins.p]
concurrency = 3
timeouts = { call = 7 }
limits = { open_files = 99 }
[plugins.p.sandbox]
limits = { memory = "64 MiB" }
"""


def read(folder: Path, text: str = "", **manifest: Any) -> dict[str, Limit]:
    spec = inspect(write_kaged_plugin(folder, "p", **manifest)).spec
    assert spec is not None
    config = parse(text)
    confinement = Bindings(config, Options(), None).confinement(spec)
    return {limit.name: limit for limit in limits_of(spec, config, confinement)}


@requirement("host:limits-sources")
def test_each_limit_comes_from_contract_manifest_operator_or_host(tmp_path: Path) -> None:
    plain = read(tmp_path / "plain")
    assert {limit.source for limit in plain.values()} == {CONTRACT, HOST}
    assert (plain["call"].value, plain["call"].source) == (30.0, CONTRACT)
    assert plain["concurrency"] == Limit("concurrency", 256, "", HOST)
    changed = read(tmp_path / "changed", OPERATED, shutdown_timeout_sec=20)
    assert {name: changed[name].source for name in ("farewell", "call", "handshake", "concurrency")} == {
        "farewell": MANIFEST,
        "call": OPERATOR,
        "handshake": CONTRACT,
        "concurrency": OPERATOR,
    }
    assert (changed["call"].value, changed["concurrency"].value) == (7, 3)
    assert (changed["open_files"].value, changed["open_files"].source) == (99, OPERATOR)
    assert changed["memory"] == Limit("memory", 64 << 20, "bytes", OPERATOR)
    assert changed["cpu"].source == HOST
