"""Capabilities in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.authorization.explanations import HIGH, LOW, MEDIUM, explain
from plugbay.model.spec import ACCESS_KINDS, Access, PluginSpec


def spec(*access: Access) -> PluginSpec:
    return PluginSpec(id="p", version="1", contract="kaged", root=Path("/p"), command=("p",), access=access)


@pytest.mark.parametrize(
    ("access", "allows", "risk"),
    [
        (Access("read_path", "/srv", capability="c"), "read files below /srv", MEDIUM),
        (Access("read_path", "/", capability="c"), "read files below /", HIGH),
        (Access("write_path", "/srv", capability="c"), "change and delete files below /srv", HIGH),
        (Access("own_path", "~/x", capability="c"), "keep files in a folder of its own", LOW),
        (Access("scratch", capability="c"), "use a temporary folder for each invocation", LOW),
        (Access("run", "/usr/bin/git", capability="c"), "start /usr/bin/git", HIGH),
        (Access("run", capability="c"), "start programs", HIGH),
        (Access("network", capability="c"), "reach any address on the network", HIGH),
        (Access("network", "a.example", 443, capability="c"), "reach a.example, port 443", MEDIUM),
        (Access("network", "a.example", capability="c"), "reach a.example, any port", MEDIUM),
        (Access("no_network", capability="c"), "nothing: it gives up the network, and needs no grant for that", LOW),
        (Access("storage_read", capability="c"), "read its own storage in the host", LOW),
        (Access("storage_write", capability="c"), "change its own storage in the host", LOW),
        (Access("topic", "usage.*", capability="c"), "read and publish snapshots of usage.*", LOW),
        (Access("topic", capability="c"), "read and publish snapshots of any topic", MEDIUM),
    ],
    ids=lambda part: f"{part.kind}-{part.target}" if isinstance(part, Access) else None,
)
def test_access_has_words_and_a_risk(access: Access, allows: str, risk: str) -> None:
    found = explain(spec(access, Access("run", "/other", capability="other")), "c")
    assert (found.allows, found.risk) == (allows, risk) and found.why


def test_every_kind_of_access_is_explained() -> None:
    assert all(explain(spec(Access(kind, capability="c")), "c").allows for kind in ACCESS_KINDS)


def test_several_kinds_of_one_capability_have_the_worst_risk() -> None:
    both = spec(Access("read_path", "/a", capability="c"), Access("write_path", "/b", capability="c"))
    found = explain(both, "c")
    assert found.allows == "read files below /a and change and delete files below /b" and found.risk == HIGH


@pytest.mark.parametrize(
    ("capability", "words", "risk"),
    [
        ("memory.recall", "search the memory of agents", MEDIUM),
        ("scope=runs:write", "use runs:write of the control plane's API", HIGH),
        ("scope=runs:read", "use runs:read of the control plane's API", MEDIUM),
        ("secret=search_key", "get the secret search_key", MEDIUM),
        ("tool.execute", "the host does nothing with it", MEDIUM),
    ],
)
def test_names_of_the_host_and_of_plugins_are_told_apart(capability: str, words: str, risk: str) -> None:
    found = explain(spec(), capability)
    assert found.allows.startswith(words) and found.risk == risk
