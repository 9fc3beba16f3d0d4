"""A plugin with the operator's decisions: the confinement of an export, and the facts of the project."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from plugbay.host.confinement.policy import Confinement
from plugbay.host.supervision.binding import Binding, Project
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Access, Export, PluginSpec

READ, WRITE = frozenset({"read"}), frozenset({"read", "write"})


def binding() -> Binding:
    """Two exports with a confinement of their own each; the one that writes must not start."""
    exports = (
        Export("tool", "reads", capabilities=("read",)),
        Export("tool", "writes", capabilities=("read", "write")),
    )
    access = (Access("read_path", "/a", capability="read"), Access("write_path", "/a", capability="write"))
    spec = PluginSpec(
        id="p", version="1", contract="vai", root=Path("/p"), command=("p",), exports=exports, access=access
    )
    refused = Confinement(refusal=Failure(Code.SANDBOX_UNAVAILABLE, "no"))
    return Binding(spec, narrowed={READ: Confinement(), WRITE: refused})


def test_an_export_has_the_confinement_of_its_capabilities() -> None:
    both = binding()
    reads, writes = both.spec.exports
    assert (both.share(reads), both.share(writes)) == (READ, WRITE)
    assert both.narrow(READ).refusal is None
    assert both.narrow(WRITE).refusal == both.narrowed[WRITE].refusal


def test_where_one_confinement_suits_all_nothing_is_narrowed() -> None:
    one = replace(binding(), narrowed={})
    assert one.share(one.spec.exports[0]) == frozenset()
    assert one.narrow(READ) is one


def test_a_project_that_nobody_named_is_not_shown() -> None:
    root = Path("/srv/shop")
    assert Project("shop", root).roots == ()
    assert Project("shop", root, shown=True).roots == ({"uri": "file:///srv/shop", "name": "shop"},)


def test_an_unknown_fact_is_none() -> None:
    project = Project("shop", Path("/shop"))
    assert (project.fact("project.id"), project.fact("project.root")) == ("shop", "/shop")
    assert project.fact("config.root") is None
