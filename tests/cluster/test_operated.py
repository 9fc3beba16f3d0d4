"""The settings of an operator reach a node as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cluster.operated import decode_settings, encode_settings, operated_config, supervise_with
from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import inspect
from plugbay.host.supervision.binding import Binding
from plugbay.wire.json_gate import Malformed
from tests.support.kaged import write_kaged_plugin

PLUGIN = {
    "grants": ["a"],
    "timeouts": {"call": 7.5},
    "limits": {"open_files": 64},
    "concurrency": 3,
    "log_level": "debug",
    "inherit_env": ["LANG"],
    "env": {"A": "1"},
    "on": {"zone": "a"},
    "config": {"in": "plugbay.toml"},
    "copies": "many",
}


def binding(folder: Path) -> Binding:
    spec = inspect(write_kaged_plugin(folder)).spec
    assert spec is not None
    secrets = {"key": "hunter2", "b": 1}
    return Binding(spec, ("x", "y"), (("A", "1"),), config={"z": 1, "a": {"c": 1, "b": 2}}, secrets=secrets)


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    given = Config.model_validate({"plugins": {"p": PLUGIN}}).plugin("p")
    line = encode_settings(binding(tmp_path), given)
    assert b"\n" not in line and line == encode_settings(binding(tmp_path), given)
    operated, plugin = decode_settings(line)
    assert operated.config == {"z": 1, "a": {"c": 1, "b": 2}} and operated.secrets == {"key": "hunter2", "b": 1}
    assert plugin.grants == ["x", "y"] and plugin.env == {"A": "1"} and plugin.inherit_env == ["LANG"]
    assert plugin.timeouts.call == 7.5 and plugin.concurrency == 3 and plugin.log_level == "debug"
    assert plugin.limits == given.limits
    assert plugin.on == {} and plugin.copies is None, "a gateway has decided on them"
    config = operated_config(Config.model_validate({"plugins": {"q": {}}}), "p", plugin)
    assert set(config.plugins) == {"p"} and config.plugin("p") is plugin


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'{"plugin":1}', b'{"plugin":"{"}', b'{"plugin":"{}","more":1}', b'{"plugin":"{\\"x\\":1}"}']
)
def test_anything_else_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        decode_settings(line)


def test_instances_get_the_secrets_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from plugbay.cluster import operated as module

    seen: list[Binding] = []
    monkeypatch.setattr(module, "supervise", lambda binding, runtime: seen.append(binding))
    operated, _ = decode_settings(encode_settings(binding(tmp_path), Config.default().plugin("p")))
    spec = binding(tmp_path).spec
    supervise_with(operated)(Binding(spec), None)  # type: ignore[arg-type]
    assert seen[0].secrets == {"key": "hunter2", "b": 1} and seen[0].config == {"z": 1, "a": {"c": 1, "b": 2}}
