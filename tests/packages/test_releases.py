"""The newest release in a registry: a real one, and one that answers anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugbay.packages import registry as artifacts
from plugbay.packages.connection import MAX_TAG_PAGES, PUSH, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import parse
from plugbay.packages.releases import is_newer, newest, origin, version_of
from tests.packages import lying_registry
from tests.packages.builders import pack
from tests.packages.lying_registry import Answer
from tests.support.requirements import requirement


@requirement("vai:package-oci")
def test_the_newest_version_among_the_tags_is_found(registry: str, tmp_path: Path) -> None:
    place = parse(f"{registry}/acme/newest")
    package = pack(tmp_path)
    with Connection(place, plain_http=True) as connection:
        assert newest(connection, place, "1.0.0") is None, "the registry has no such repository yet"
    for tag in ("1.9.0", "1.10.0", "2.0.0-rc.1", "latest", "1.2"):
        with Connection(place, plain_http=True, actions=PUSH) as connection:
            artifacts.push(connection, parse(f"{registry}/acme/newest:{tag}"), package, {})
    with Connection(place, plain_http=True) as connection:
        found = newest(connection, place, "1.9.0")
        assert found == parse(f"{registry}/acme/newest:1.10.0")
        assert (is_newer(found, "1.9.0"), is_newer(found, "1.10.0"), is_newer(found, "1.10.1")) == (True, False, False)
        early = newest(connection, place, "2.0.0-beta")
        assert early is not None and early.tag == "2.0.0-rc.1"


FIRST = "/v2/acme/x/tags/list?n=1000"
MORE = (("link", "</next>; rel=next"),)


def find(answers: dict[str, Answer], current: str = "1.0.0") -> str | None:
    with lying_registry.serve(answers) as (address, _):
        place = parse(f"{address}/acme/x")
        with Connection(place, plain_http=True) as connection:
            found = newest(connection, place, current)
    return None if found is None else found.tag


def page(*names: object, more: bool = False) -> Answer:
    return Answer(json.dumps({"tags": list(names)}).encode(), headers=MORE if more else ())


def test_tags_on_later_pages_count() -> None:
    answers = {FIRST: page("1.0.0", "1.1.0", more=True), f"{FIRST}&last=1.1.0": page("3.0.0")}
    assert find(answers) == "3.0.0"
    assert find({FIRST: page("1.0.0", "1.1.0")}) == "1.1.0"


@pytest.mark.parametrize(
    "answer",
    [
        page(),
        page(7, None, ["1.0.0"], {}),
        page("latest", "sha256-abc", "1.0.0-rc.1", "9" * 200),
        Answer(b"not JSON"),
        Answer(b'{"tags": "2.0.0"}'),
    ],
)
def test_an_answer_without_a_version_names_none(answer: Answer) -> None:
    assert find({FIRST: answer}) is None


def test_a_list_of_tags_that_does_not_end_is_given_up() -> None:
    endless = {f"{FIRST}&last=2.0.0": page("2.0.0", more=True), FIRST: page("2.0.0", more=True)}
    with pytest.raises(PackageRefused) as refused:
        find(endless)
    assert (refused.value.reason, MAX_TAG_PAGES > 1) == (Reason.REGISTRY_FAILED, True)
    with pytest.raises(PackageRefused) as refused:
        find({FIRST: Answer(b'{"tags": ["' + b"1" * 65536, endless=True)})
    assert refused.value.reason is Reason.TOO_LARGE


def test_a_release_from_a_file_has_no_origin() -> None:
    assert origin("acme.notes-1.0.0.tar.gz") is None
    assert origin(f"oci://registry.example/acme/notes:1@sha256:{'0' * 64}") == parse("registry.example/acme/notes")
    assert version_of("1.0.0_build.7") == "1.0.0+build.7"
