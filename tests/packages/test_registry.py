"""Push and pull: a real registry for what must work, a lying one for what must be refused."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from plugbay.packages import registry as artifacts
from plugbay.packages.archive import signature_path
from plugbay.packages.connection import PUSH, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import Reference, parse
from plugbay.packages.registry import ARCHIVE_TYPE, MANIFEST_TYPE, SIGNATURE_TYPE, Pulled, Pushed
from plugbay.packages.rules import Limits
from tests.packages import lying_registry
from tests.packages.builders import Bench, pack
from tests.packages.lying_registry import Answer
from tests.support.requirements import requirement


def push(place: Reference, package: Path, **facts: str) -> Pushed:
    with Connection(place, plain_http=True, actions=PUSH) as connection:
        return artifacts.push(connection, place, package, facts)


def pull(place: Reference, out: Path, limits: Limits | None = None) -> Pulled:
    with Connection(place, plain_http=True) as connection:
        return artifacts.pull(connection, place, out, limits or Limits())


@requirement("vai:package-oci")
def test_a_package_and_its_signature_come_back_as_they_went(registry: str, bench: Bench, tmp_path: Path) -> None:
    package = bench.release("1.0.0")
    place = parse(f"{registry}/acme/notes:1.0.0")
    pushed = push(place, package, title="Notes")
    for reference in (place, pushed.reference):
        (tmp_path / "out").mkdir(exist_ok=True)
        pulled = pull(reference, tmp_path / "out")
        assert pulled.archive == tmp_path / "out" / "notes-1.0.0.tar.gz"
        assert pulled.archive.read_bytes() == package.read_bytes()
        assert pulled.signature is not None
        assert pulled.signature.read_bytes() == signature_path(package).read_bytes()
        assert pulled.reference == pushed.reference
        assert pulled.archive_digest == pushed.archive_digest
    assert bench.install(pulled.archive) == "1.0.0"


@requirement("vai:package-oci")
def test_the_artifact_has_the_proposed_form(registry: str, bench: Bench) -> None:
    package = bench.release("1.0.0")
    place = parse(f"{registry}/acme/form:1.0.0")
    pushed = push(place, package, title="Notes")
    with Connection(place, plain_http=True) as connection:
        data = connection.manifest(place, MANIFEST_TYPE, 10_000)
    assert data is not None
    document = json.loads(data)
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == pushed.reference.digest
    assert document["artifactType"] == "application/vnd.vai.plugin.package.v1"
    assert document["config"] == {
        "mediaType": "application/vnd.oci.empty.v1+json",
        "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "size": 2,
    }
    assert [layer["mediaType"] for layer in document["layers"]] == [ARCHIVE_TYPE, SIGNATURE_TYPE]
    assert document["layers"][0]["digest"] == f"sha256:{hashlib.sha256(package.read_bytes()).hexdigest()}"
    assert document["annotations"] == {"title": "Notes"}


def test_an_unsigned_package_comes_back_unsigned_and_old_signatures_do_not_stay(registry: str, tmp_path: Path) -> None:
    package = pack(tmp_path)
    place = parse(f"{registry}/acme/unsigned:1.0.0")
    pushed = push(place, package)
    out = tmp_path / "x.tar.gz"
    signature_path(out).write_text("of something else")
    assert pull(pushed.reference, out).signature is None
    assert not signature_path(out).exists()


@requirement("vai:package-immutable")
def test_a_tag_is_never_moved_to_another_package_but_may_be_signed_anew(registry: str, bench: Bench) -> None:
    package = bench.release("1.0.0")
    place = parse(f"{registry}/acme/tags:1.0.0")
    first = push(place, package)
    assert push(place, package) == first
    bench.edit_signature(package, signed_at="2026-11-16T00:00:00Z")
    again = push(place, package)
    assert (again.archive_digest, again.reference != first.reference) == (first.archive_digest, True)
    with pytest.raises(PackageRefused) as caught:
        push(place, bench.release("1.0.0", description="other"))
    assert caught.value.reason is Reason.VERSION_CONFLICT


def test_a_missing_artifact_is_not_found(registry: str, tmp_path: Path) -> None:
    for text in ("acme/gone:1", f"acme/gone@sha256:{'0' * 64}"):
        with pytest.raises(PackageRefused) as caught:
            pull(parse(f"{registry}/{text}"), tmp_path)
        assert caught.value.reason is Reason.NOT_FOUND
    assert os.listdir(tmp_path) == []


def test_progress_is_reported_up_to_the_last_byte(registry: str, bench: Bench, tmp_path: Path) -> None:
    package = bench.release("1.0.0")
    told: list[tuple[str, int, int]] = []
    place = parse(f"{registry}/acme/progress:1")
    with Connection(place, plain_http=True, actions=PUSH) as connection:
        artifacts.push(connection, place, package, {}, lambda *step: told.append(step))
    size = package.stat().st_size
    assert (package.name, size, size) in told
    told.clear()
    with Connection(place, plain_http=True) as connection:
        artifacts.pull(connection, place, tmp_path / "x", progress=lambda *step: told.append(step))
    assert ("x", size, size) in told


# A lying registry.

BODY = b"the archive"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def manifest(**layer: Any) -> dict[str, Any]:
    blob = {"mediaType": ARCHIVE_TYPE, "digest": digest_of(BODY), "size": len(BODY)}
    return {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": [blob | layer]}


def reason_of(
    tmp_path: Path, document: Any, body: Answer, reference: str = "a:1", limits: Limits | None = None
) -> Reason | None:
    """Why a pull from this registry is refused; None when it is not."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    wanted = parse(f"localhost/{reference}").wanted
    answers = {f"/v2/a/manifests/{wanted}": Answer(data), f"/v2/a/blobs/{digest_of(BODY)}": body}
    with lying_registry.serve(answers) as (address, _):
        try:
            pull(parse(f"{address}/{reference}"), tmp_path / "out", limits)
        except PackageRefused as refused:
            assert os.listdir(tmp_path) == []
            return refused.reason
    return None


def test_an_honest_answer_of_the_same_server_is_taken(tmp_path: Path) -> None:
    assert reason_of(tmp_path, manifest(), Answer(BODY)) is None
    assert (tmp_path / "out").read_bytes() == BODY


@requirement("vai:package-digest-verified")
@pytest.mark.parametrize("body", [b"the archivE", b"the archiv", b"the archive!", b""])
def test_other_bytes_than_were_asked_for_are_refused_and_not_kept(tmp_path: Path, body: bytes) -> None:
    assert reason_of(tmp_path, manifest(), Answer(body)) is Reason.DIGEST_MISMATCH


@requirement("vai:package-digest-verified")
def test_another_manifest_than_was_asked_for_is_refused(tmp_path: Path) -> None:
    other = f"a@sha256:{'0' * 64}"
    assert reason_of(tmp_path, manifest(), Answer(BODY), other) is Reason.DIGEST_MISMATCH
    asked = f"a@{digest_of(json.dumps(manifest()).encode())}"
    assert reason_of(tmp_path, manifest(), Answer(BODY), asked) is None


@requirement("vai:package-limits")
def test_too_much_is_refused_before_and_while_it_comes(tmp_path: Path) -> None:
    assert reason_of(tmp_path, manifest(size=1 << 40), Answer(BODY)) is Reason.TOO_LARGE
    assert reason_of(tmp_path, manifest(), Answer(BODY), limits=Limits(packed=5)) is Reason.TOO_LARGE
    assert reason_of(tmp_path, manifest(), Answer(b"x" * 4096, endless=True)) is Reason.DIGEST_MISMATCH
    assert reason_of(tmp_path, b" " * (2 << 20), Answer(BODY)) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "document",
    [
        b"not json",
        [],
        {},
        manifest() | {"layers": []},
        manifest() | {"mediaType": "application/vnd.oci.image.index.v1+json"},
        manifest(mediaType="application/vnd.oci.image.layer.v1.tar+gzip"),
        manifest(digest="sha256:../../etc/passwd"),
        manifest(size=-1),
        manifest(size="11"),
    ],
)
def test_a_manifest_that_is_no_packages_is_refused(tmp_path: Path, document: Any) -> None:
    assert reason_of(tmp_path, document, Answer(BODY)) is Reason.BAD_ARCHIVE
