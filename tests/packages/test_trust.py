"""Which keys count for which plugins, until when; refusals name the expected keys."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.model.errors import ConfigInvalid
from plugbay.packages import documents, keys
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.trust import TrustedKey, TrustStore
from tests.packages.builders import NOW, key
from tests.support.requirements import requirement

ACME = TrustedKey(keys.public_of(key()), "acme")
EVIL = TrustedKey(keys.public_of(key()), "evil")


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    store = TrustStore(tmp_path / "config" / "trust.json")
    store.add(ACME)
    store.add(EVIL)
    return store


def refusal(store: TrustStore, key_id: str, package_id: str = "acme/devkit") -> PackageRefused:
    with pytest.raises(PackageRefused) as caught:
        store.judge(key_id, package_id, NOW)
    return caught.value


@requirement("vai:package-publisher-bound")
@pytest.mark.parametrize("package_id", ["acme/devkit", "acme.notes", "acme.notes.deep", "acme"])
def test_a_key_signs_for_its_publisher(store: TrustStore, package_id: str) -> None:
    assert store.judge(ACME.key_id, package_id, NOW) == ACME


@requirement("vai:package-publisher-bound")
@pytest.mark.parametrize("package_id", ["evil/devkit", "acme.corp/devkit", "acmee.notes", "acm", "notes", "x/acme"])
def test_a_key_signs_only_for_its_publisher(store: TrustStore, package_id: str) -> None:
    found = refusal(store, ACME.key_id, package_id)
    assert found.reason is Reason.KEY_OF_OTHER_PUBLISHER
    assert "acme's" in found.message


def test_an_id_without_a_publisher_is_signed_by_the_key_that_lists_it(store: TrustStore) -> None:
    store.add(replace(ACME, packages=("memory-notes",)))
    assert store.judge(ACME.key_id, "memory-notes", NOW).publisher == "acme"
    other = refusal(store, ACME.key_id, "memory-note")
    assert other.reason is Reason.KEY_OF_OTHER_PUBLISHER
    assert other.hint.endswith("plugbay trust add KEY.pub --publisher acme --package memory-note")


OTHER = TrustedKey(keys.public_of(key()), "acme")


@requirement("vai:package-trust-replace")
def test_a_second_key_of_a_publisher_is_refused_kept_or_replaces_the_first(store: TrustStore) -> None:
    with pytest.raises(PackageRefused) as caught:
        store.add(OTHER)
    assert caught.value.reason is Reason.KEY_CONFLICT and f"{ACME.key_id} (acme)" in caught.value.message
    assert "--replace" in caught.value.hint and "--also" in caught.value.hint
    assert store.keys() == [ACME, EVIL]
    assert store.add(OTHER, "keep") == [] and store.keys() == [ACME, EVIL, OTHER]
    assert store.add(OTHER, "replace") == [ACME] and store.keys() == [EVIL, OTHER]
    store.revoke(OTHER.key_id)
    assert store.add(ACME) == [], "a revoked key of the publisher is no other key"


@requirement("vai:package-trust-replace")
def test_a_key_is_not_given_to_another_publisher_silently(store: TrustStore) -> None:
    moved = replace(ACME, publisher="mallory")
    with pytest.raises(PackageRefused) as caught:
        store.add(moved, "keep")
    assert caught.value.reason is Reason.KEY_CONFLICT and "is trusted for acme" in caught.value.message
    assert store.add(moved, "replace") == [] and store.keys() == [moved, EVIL]


@requirement("vai:package-unknown-key")
def test_an_unknown_key_is_refused_with_the_keys_that_were_expected(store: TrustStore) -> None:
    found = refusal(store, "0123456789abcdef")
    assert found.reason is Reason.KEY_UNKNOWN
    assert f"expected: {ACME.key_id} (acme)" in found.message
    assert "plugbay trust add" in found.hint
    assert found.detail["expected"] == [ACME.key_id]
    assert "no trusted key may sign it" in refusal(store, "0123456789abcdef", "other/x").message


@requirement("vai:package-other-publisher")
def test_another_publishers_key_is_refused_with_the_keys_that_were_expected(store: TrustStore) -> None:
    found = refusal(store, EVIL.key_id)
    assert found.reason is Reason.KEY_OF_OTHER_PUBLISHER
    assert ACME.key_id in found.message


@requirement("vai:package-key-expiry")
def test_a_key_counts_until_its_time_is_over(store: TrustStore) -> None:
    store.add(replace(ACME, not_after=NOW + timedelta(seconds=1)))
    assert store.judge(ACME.key_id, "acme/devkit", NOW).key_id == ACME.key_id
    store.add(replace(ACME, not_after=NOW))
    found = refusal(store, ACME.key_id)
    assert (found.reason, "2026-11-15" in found.message) == (Reason.KEY_EXPIRED, True)


@requirement("vai:package-key-revocation")
def test_a_revoked_key_counts_for_nothing_and_cannot_come_back(store: TrustStore) -> None:
    assert store.revoke(ACME.key_id).revoked
    assert refusal(store, ACME.key_id).reason is Reason.KEY_REVOKED
    with pytest.raises(PackageRefused, match="cannot be trusted again"):
        store.add(ACME)
    with pytest.raises(PackageRefused) as caught:
        store.revoke("0123456789abcdef")
    assert caught.value.reason is Reason.NOT_FOUND


@requirement("vai:package-weak-keys")
def test_a_weak_key_is_never_trusted(store: TrustStore) -> None:
    with pytest.raises(PackageRefused, match="weak"):
        store.add(TrustedKey(b"\x01" + bytes(31), "acme"))


def test_a_store_reads_back_its_keys(store: TrustStore) -> None:
    later = replace(ACME, not_after=NOW, packages=("x",))
    store.add(later)
    assert TrustStore(store.path).keys() == [later, EVIL]


def test_a_missing_trust_store_trusts_no_key(tmp_path: Path) -> None:
    assert TrustStore(tmp_path / "gone" / "trust.json").keys() == []


def entry(**changes: Any) -> str:
    return json.dumps([ACME.to_json() | changes])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{}", "list"),
        (entry(key_id="0" * 16), "the id of a key is"),
        (entry(public_key="AAAA"), "32 bytes"),
        (entry(public_key="?"), "32 bytes"),
        (entry(public_key=f"{ACME.to_json()['public_key']}\n"), "32 bytes"),
        (entry(publisher=""), "publisher"),
        (entry(packages="x"), "packages"),
        (entry(not_after="2027-01-01"), "not_after"),
        (entry(not_after="2027-01-01T00:00:00"), "not_after"),
        (entry(revoked="no"), "revoked"),
        (entry(trusted=True), "trusted"),
        (entry(publisher="acme/devkit"), "is not a publisher"),
        (entry(packages=["a\nb"]), "package 'a.*b' is not a name"),
        (json.dumps([ACME.to_json(), ACME.to_json() | {"revoked": True}]), "twice"),
        (f"[{' ' * documents.MAX_BYTES}]", "has more than"),
    ],
)
def test_a_file_of_no_use_is_an_error_and_never_an_empty_store(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "trust.json").write_text(text)
    with pytest.raises(ConfigInvalid, match=words):
        TrustStore(tmp_path / "trust.json").keys()


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "trust.json").mkdir()
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        TrustStore(tmp_path / "trust.json").judge("x", "y", NOW)


@pytest.mark.parametrize("publisher", ["", " ", "acme ", "acme/devkit", "acme.", ".", "a\tb", "a\u202eb", "a" * 501])
def test_impossible_publisher_names_are_refused(publisher: str) -> None:
    with pytest.raises(ValueError, match=r"publisher .* is not a (name|publisher)"):
        replace(ACME, publisher=publisher)


@requirement("vai:package-trust-file")
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_trust_store_writable_by_others_is_refused_with_a_hint(store: TrustStore, mode: int) -> None:
    assert store.path.stat().st_mode & 0o777 == 0o644
    store.path.chmod(mode)
    with pytest.raises(ConfigInvalid, match="chmod go-w"):
        store.judge(ACME.key_id, "acme/devkit", NOW)
    with pytest.raises(ConfigInvalid, match="chmod go-w"):
        store.add(ACME)


def test_keys_that_are_added_at_the_same_time_are_all_there(store: TrustStore) -> None:
    added = [TrustedKey(keys.public_of(key()), "acme") for _ in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: TrustStore(store.path).add(item, "keep"), added))
    found = store.keys()
    assert sorted(item.key_id for item in found) == sorted(item.key_id for item in (ACME, EVIL, *added))


@pytest.mark.parametrize("publisher", ["a", "~acme~", "a" * 500])
def test_any_printable_name_is_a_publisher(publisher: str) -> None:
    assert replace(ACME, publisher=publisher).covers(f"{publisher}/devkit")


def test_a_key_in_a_file_counts_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    shortest = {name: ACME.to_json()[name] for name in ("key_id", "public_key", "publisher")}
    (tmp_path / "trust.json").write_text(json.dumps([shortest]))
    assert TrustStore(tmp_path / "trust.json").keys() == [ACME]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_others_may_read_a_trust_store(store: TrustStore, mode: int) -> None:
    store.path.chmod(mode)
    assert store.keys() == [ACME, EVIL]


def test_a_problem_has_a_code(store: TrustStore) -> None:
    store.path.write_text(entry(key_id="0" * 16))
    with pytest.raises(ConfigInvalid) as caught:
        store.keys()
    assert [problem.code for problem in caught.value.problems] == ["invalid_value"]
