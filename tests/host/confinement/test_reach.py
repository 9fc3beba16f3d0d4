"""The reach of a binding narrows the manifest of a package and the configuration of its host."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.config.config import Config, parse
from plugbay.host.confinement.reach import Reach, narrow_access, package_config
from plugbay.host.discovery.folders import inspect
from plugbay.model.spec import Access
from tests.support.vai import export, write_vai_plugin


@pytest.mark.parametrize(
    ("base_url", "private"),
    [
        ("http://127.0.0.1:8787", ["127.0.0.1:8787"]),
        ("http://localhost:8787", ["127.0.0.1:8787"]),
        ("http://[::1]:8787", ["[::1]:8787"]),
        ("https://gateway.example", []),
        (None, []),
    ],
)
def test_a_gateway_on_this_machine_is_the_one_private_address_that_plugins_reach(
    base_url: str | None, private: list[str]
) -> None:
    assert package_config(Config(), base_url).network.allow_private == private


def test_hosts_of_packages_are_joined_with_nobody() -> None:
    shared = parse('[broker]\nurl = "nats://127.0.0.1:1"\ntopics = [">"]')
    assert package_config(shared, None).broker is None


def test_a_policy_takes_hosts_away_from_the_process_itself(tmp_path: Path) -> None:
    asked = {"network": "egress", "filesystem": "scratch"}
    found = inspect(write_vai_plugin(tmp_path, exports=[export(permissions=asked)]))

    def access(reach: Reach) -> list[tuple[str, int | None]]:
        spec = narrow_access(found, reach, "https://gateway.example").spec
        assert spec is not None and any(item.kind == "scratch" for item in spec.access)
        return [(item.target, item.port) for item in spec.access if item.kind == "network"]

    assert access(Reach()) == [("", None)] and access(Reach(())) == []
    assert access(Reach(("api.example",))) == [("api.example", None), ("gateway.example", 443)]
    offline = inspect(write_vai_plugin(tmp_path / "offline", exports=[export()]))
    assert narrow_access(offline, Reach(("api.example",)), None) is offline
    assert (
        Access("network", "api.example", capability="network")
        in (
            narrow_access(found, Reach(("api.example",)), None).spec or found.spec  # type: ignore[union-attr]
        ).access
    )
