"""Installed plugins as values: signers, releases, differences, and the next step of each refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.packages import keys
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import Difference
from plugbay.packages.store import Highest, Installed, Release, State
from plugbay.packages.trust import TrustedKey
from plugbay.server.dashboard.views.installed import (
    Line,
    change_facts,
    compare,
    look_of,
    refusal_of,
    registry_of,
    releases_of,
    signer_of,
)
from tests.packages.builders import Bench, key

PAGE = "/installed/acme.notes"


def release(number: int, source: str = "upload", key_id: str | None = None) -> Release:
    return Release(
        digest=f"sha256:{number:064x}",
        version=f"{number}.0.0",
        contract="rune",
        source=source,
        key_id=key_id,
        installed_at=f"2026-11-15T12:00:0{number}Z",
    )


def installed(position: int, *releases: Release) -> Installed:
    highest = Highest(version=releases[-1].version, digest=releases[-1].digest)
    return Installed(State(id="acme.notes", highest=highest, releases=list(releases)), position, Path("/s/plugins/x"))


def test_a_signer_is_what_the_trusted_publishers_say_now() -> None:
    public = keys.public_of(key())
    good, revoked = TrustedKey(public, "acme"), TrustedKey(public, "acme", revoked=True)
    found = [
        signer_of(None, {}),
        signer_of(good.key_id, {}),
        signer_of(good.key_id, {good.key_id: good}),
        signer_of(good.key_id, {good.key_id: revoked}),
    ]
    assert [(badge.word, badge.tone) for badge in found] == [
        ("unsigned", "warn"),
        ("unknown", "warn"),
        ("acme", "good"),
        ("acme", "bad"),
    ]


def test_releases_are_listed_newest_first_with_the_way_of_a_rollback() -> None:
    rows = releases_of(installed(2, *map(release, (1, 2, 3, 4))), {})
    assert [(row.version, row.badge.word) for row in rows] == [
        ("4.0.0", "rolled back"),
        ("3.0.0", "current"),
        ("2.0.0", "previous"),
        ("1.0.0", "kept"),
    ]


def test_differences_are_new_then_kept_then_gone() -> None:
    assert compare(("a", "b"), ("b", "b for tool t"), ("c",)) == (
        Line("b", "new"),
        Line("b for tool t", "new"),
        Line("a"),
        Line("c", "gone"),
    )


def test_a_confirmation_lists_differences_or_says_that_there_are_none() -> None:
    assert change_facts(Difference(("a", "b"), (), (), ("tool t",))) == (
        ("asks for more", "a"),
        ("asks for more", "b"),
        ("no longer exports", "tool t"),
    )
    assert change_facts(Difference((), (), (), ()))[0][1].startswith("none")
    assert change_facts(None)[0][1].startswith("unknown")


@pytest.mark.parametrize(
    ("reason", "link", "word"),
    [
        (Reason.UNSIGNED, "", "--allow-unsigned"),
        (Reason.KEY_UNKNOWN, "/publishers", "trust it"),
        (Reason.KEY_OF_OTHER_PUBLISHER, "/publishers", "--packages"),
        (Reason.KEY_REVOKED, "/publishers", "trusted key"),
        (Reason.KEY_EXPIRED, "/publishers", "trusted key"),
        (Reason.SIGNATURE_INVALID, "", "again"),
        (Reason.TAMPERED, "", "again"),
        (Reason.DOWNGRADE, PAGE, "rollback"),
        (Reason.REPLAYED, "", "--allow-downgrade"),
        (Reason.VERSION_CONFLICT, "", "new version"),
        (Reason.PINNED, PAGE, "Unpin"),
    ],
)
def test_each_refusal_has_a_next_step(reason: Reason, link: str, word: str) -> None:
    step = refusal_of(PackageRefused(reason, "it is refused", hint="plugbay something"), PAGE)
    assert step.title == "it is refused" and step.link == link and word in step.text
    assert "plugbay something" not in step.text, "the hint of the command line"


def test_the_registry_of_a_release_is_offered_for_the_next_tag() -> None:
    pulled = release(1, f"oci://registry.example:5000/acme/notes:1.0.0@sha256:{'0' * 64}")
    assert registry_of(installed(0, pulled)) == "oci://registry.example:5000/acme/notes:"
    assert registry_of(installed(0, release(1))) == ""


def test_a_look_shows_signer_permissions_and_the_digest_on_its_button(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    package = bench.release("1.0.0", capabilities=["a"])
    first = look_of(bench.installer.look(package), "upload", PAGE)
    assert (first.before, first.before_digest, first.is_compared) == ("", "", False)
    assert (
        first.asks_for_grants and first.label == f"Install 1.0.0, {first.digest[:19]}…" and first.signer.word == "acme"
    )
    assert (first.asks[0].text, first.asks[0].mark) == ("a", "") and Line("tool t") in first.exports
    risk = first.asks[0].risk
    assert (
        risk is not None
        and (risk.word, risk.tone) == ("medium risk", "warn")
        and "does nothing with it" in first.asks[0].allows
    )
    bench.install(package)
    tools = [{"name": "t"}, {"name": "u"}]
    second = look_of(bench.installer.look(bench.release("2.0.0", capabilities=["b"], tools=tools)), "upload", PAGE)
    assert second.before == "1.0.0" and second.before_digest == first.digest and second.is_compared
    marks = {line.text: (line.mark, line.risk is not None) for line in second.asks}
    assert marks["b"] == ("new", True) and marks["a"] == ("gone", False)
    assert second.exports == (Line("tool u", "new"), Line("tool t"))
    assert second.label.startswith("Upgrade to 2.0.0, sha256:")
