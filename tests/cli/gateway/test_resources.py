"""Which command sends which request of the control plane."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from plugbay.cli.gateway.commands import routes
from plugbay.cli.gateway.resources import RESOURCES
from tests.support.requirements import requirement

VERBS = [verb for resource in RESOURCES.values() for verb in resource.verbs.values()]


@requirement("host:control-plane-commands")
def test_every_route_of_the_control_plane_has_one_command() -> None:
    used = Counter(verb.route for verb in VERBS)
    assert set(used) == set(routes())
    assert max(used.values()) == 1


def test_work_is_polled_by_a_route_that_takes_its_id() -> None:
    polled = {verb.work for verb in VERBS if verb.work}
    assert polled and all(route.startswith("GET ") and route.endswith("}") for route in polled & set(routes()))
    assert polled <= set(routes())


def test_the_page_lists_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "control-plane.md").read_text()
    for name, resource in RESOURCES.items():
        verbs = ", ".join(f"`{verb}`" for verb in resource.verbs)
        assert f"| `plugbay {name}` | {verbs} |" in page
