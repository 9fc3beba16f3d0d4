"""The signed form, and one reason for each way in which a package can differ from its signature."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from plugbay.packages import keys, signature
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import Package, read_folder
from tests.packages.builders import NOW, key, plugin
from tests.support.requirements import requirement

KEY = key()
PUBLIC = keys.public_of(KEY)


@pytest.fixture
def package(tmp_path: Path) -> Package:
    folder = plugin(tmp_path)
    (folder / "été.txt").write_text("été")
    return read_folder(folder, to_pack=True)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def reason_of(signed: signature.Signature, package: Package) -> Reason:
    with pytest.raises(PackageRefused) as caught:
        signature.check(signed, PUBLIC, package)
    return caught.value.reason


@requirement("vai:package-signature-file")
def test_the_document_has_the_proposed_members(package: Package) -> None:
    document = json.loads(signature.sign(package, KEY, NOW).to_bytes())
    made = document.pop("signature")
    lines = "".join(f"{package.files[name]}  {name}\n" for name in ("rterm-plugin.json", "run.sh", "été.txt"))
    assert document == {
        "schema": "vai.plugin.signature.v1",
        "package_id": "acme.notes",
        "version": "1.0.0",
        "algorithm": "ed25519",
        "key_id": hashlib.sha256(PUBLIC).hexdigest()[:16],
        "signed_at": "2026-11-15T12:00:00Z",
        "manifest_sha256": package.files["rterm-plugin.json"],
        "tree_sha256": sha256(lines),
        "files": dict(package.files),
    }
    assert len(made) == 88


@requirement("vai:package-signature-ed25519")
def test_the_signed_bytes_are_the_schema_name_and_the_sorted_members(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    document = json.loads(signed.to_bytes())
    made = document.pop("signature")
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert signed.signed_bytes() == f"vai.plugin.signature.v1\n{text}".encode()
    import base64

    KEY.public_key().verify(base64.b64decode(made), signed.signed_bytes())


def test_a_signature_is_accepted_after_reading_it_back_in_any_layout(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    signature.check(signature.read(signed.to_bytes()), PUBLIC, package)
    signature.check(signature.read(json.dumps(json.loads(signed.to_bytes())).encode()), PUBLIC, package)


def test_times_are_utc(package: Package) -> None:
    elsewhere = datetime(2026, 11, 15, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    assert signature.timestamp(elsewhere) == "2026-11-15T12:00:00Z"


@requirement("vai:package-tampered")
@pytest.mark.parametrize("name", ["run.sh", "rterm-plugin.json", "été.txt"])
def test_one_changed_file_is_tampering(package: Package, name: str) -> None:
    signed = signature.sign(package, KEY, NOW)
    changed = replace(package, files={**package.files, name: sha256("other")})
    assert reason_of(signed, changed) is Reason.TAMPERED


@requirement("vai:package-extra-file")
def test_a_file_too_many_is_named(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    assert reason_of(signed, replace(package, files={**package.files, "more": sha256("")})) is Reason.EXTRA_FILE


@requirement("vai:package-missing-file")
def test_a_file_too_few_is_named(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    fewer = {name: text for name, text in package.files.items() if name != "run.sh"}
    assert reason_of(signed, replace(package, files=fewer)) is Reason.MISSING_FILE


def test_two_files_that_changed_places_are_tampering(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    files = dict(package.files)
    files["run.sh"], files["été.txt"] = files["été.txt"], files["run.sh"]
    assert reason_of(signed, replace(package, files=files)) is Reason.TAMPERED


@requirement("vai:package-edited-version")
def test_a_manifest_with_another_version_or_id_does_not_match_the_signature(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    for spec in (replace(package.spec, version="9.9.9"), replace(package.spec, id="acme.other")):
        assert reason_of(signed, replace(package, spec=spec)) is Reason.IDENTITY_MISMATCH


@requirement("vai:package-edited-version", "vai:package-signature-ed25519")
@pytest.mark.parametrize(
    "change",
    [
        {"version": "9.9.9"},
        {"package_id": "acme.other"},
        {"signed_at": "2030-01-01T00:00:00Z"},
        {"tree_sha256": sha256("")},
        {"manifest_sha256": sha256("")},
        {"files": {}},
        {"key_id": "0" * 16},
        {"signature": "A" * 86 + "=="},
        {"signature": "AAAA"},
        {"signature": "no base64"},
    ],
)
def test_an_edited_signature_file_is_no_signature(package: Package, change: dict[str, Any]) -> None:
    document = json.loads(signature.sign(package, KEY, NOW).to_bytes())
    edited = signature.read(json.dumps(document | change).encode())
    assert reason_of(edited, package) is Reason.SIGNATURE_INVALID


def test_contents_can_be_checked_without_the_key(package: Package) -> None:
    signed = signature.sign(package, key(), NOW)
    signature.check_contents(signed, package)
    with pytest.raises(PackageRefused, match="sign it again") as caught:
        signature.check_contents(signed, replace(package, files={**package.files, "run.sh": "0" * 64}))
    assert caught.value.reason is Reason.TAMPERED


def test_a_key_holder_cannot_contradict_himself(package: Package) -> None:
    import base64

    document = json.loads(signature.sign(package, KEY, NOW).to_bytes()) | {"tree_sha256": sha256("")}
    unsigned = signature.read(json.dumps(document).encode())
    made = base64.b64encode(KEY.sign(unsigned.signed_bytes())).decode()
    assert reason_of(unsigned.model_copy(update={"signature": made}), package) is Reason.BAD_SIGNATURE_FILE


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "vai.plugin.signature.v2"},
        {"algorithm": "none"},
        {"files": ["run.sh"]},
        {"files": {"run.sh": "short"}},
        {"files": {"run.sh": 1}},
        {"more": 1},
        {"version": None},
        {"key_id": "UPPER"},
    ],
)
def test_a_file_that_is_no_signature_is_refused(package: Package, change: dict[str, Any]) -> None:
    document = json.loads(signature.sign(package, KEY, NOW).to_bytes()) | change
    with pytest.raises(PackageRefused) as caught:
        signature.read(json.dumps(document).encode())
    assert caught.value.reason is Reason.BAD_SIGNATURE_FILE


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"schema": 1, "schema": 2}', b"[" * 100_000])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(PackageRefused) as caught:
        signature.read(data)
    assert caught.value.reason is Reason.BAD_SIGNATURE_FILE


@requirement("vai:package-tampered")
def test_every_flipped_bit_of_a_signature_file_is_refused_or_says_the_same(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    data = signed.to_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        try:
            read = signature.read(bytes(flipped))
            signature.check(read, PUBLIC, package)
        except PackageRefused:
            continue
        assert read == signed, f"byte {position}"


@pytest.mark.parametrize("change", ["{}\n", "{}=", "\n{}", "{}AAAA"])
def test_a_signature_has_one_spelling(package: Package, change: str) -> None:
    signed = signature.sign(package, KEY, NOW)
    spelled = signed.model_copy(update={"signature": change.format(signed.signature)})
    assert reason_of(spelled, package) is Reason.SIGNATURE_INVALID


@pytest.mark.parametrize(("version", "is_good"), [("", False), ("1", True), ("1" * 500, True), ("1" * 501, False)])
def test_a_text_has_1_to_500_characters(package: Package, version: str, is_good: bool) -> None:
    document = json.loads(signature.sign(package, KEY, NOW).to_bytes()) | {"version": version}
    if is_good:
        assert signature.read(json.dumps(document).encode()).version == version
    else:
        with pytest.raises(PackageRefused, match="version"):
            signature.read(json.dumps(document).encode())


def test_a_refusal_shows_three_problems_and_lists_all() -> None:
    with pytest.raises(PackageRefused) as caught:
        signature.read(b"{}")
    assert caught.value.message.count("; ") == 2 and len(caught.value.detail["problems"]) > 3


def test_the_first_odd_file_is_named_and_the_others_are_counted(package: Package) -> None:
    signed = signature.sign(package, KEY, NOW)
    for more, words in (
        ({"a": "0"}, "'a' is not covered by the signature"),
        ({"a": "0", "b": "0"}, "signature (and 1 more)"),
    ):
        with pytest.raises(PackageRefused) as caught:
            signature.check(signed, PUBLIC, replace(package, files={**package.files, **more}))
        assert caught.value.message.endswith(words)


def test_a_document_that_was_read_cannot_be_changed(package: Package) -> None:
    with pytest.raises(ValidationError):
        signature.sign(package, KEY, NOW).version = "2"
