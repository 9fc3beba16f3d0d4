"""A node pulls packages by digest, verifies them itself, and keeps them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from plugbay.cluster.envelope import Package
from plugbay.cluster.releases import NodeReleases
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.trust import TrustStore
from tests.support.nodes import Cell
from tests.support.packaged import SIGNED_AT
from tests.support.requirements import requirement


def releases(cell: Cell, folder: Path, *, require_signature: bool = True) -> NodeReleases:
    return NodeReleases(folder, TrustStore(cell.trust), lambda: SIGNED_AT, require_signature=require_signature)


def load(made: NodeReleases, package: Package) -> Path:
    return asyncio.run(made.load(package)).root


def refusal(made: NodeReleases, package: Package) -> Reason:
    with pytest.raises(PackageRefused) as caught:
        load(made, package)
    return caught.value.reason


@requirement("host:nodes-packages")
def test_a_package_is_pulled_once(shared_cell: Cell, tmp_path: Path) -> None:
    package, _ = shared_cell.push(shared_cell.publisher.pack())
    made = releases(shared_cell, tmp_path)
    assert (load(made, package) / "vai-plugin.toml").is_file()
    gone = replace(package, source="oci://127.0.0.1:1/p@sha256:" + "0" * 64)
    assert load(made, gone).is_dir(), "it is here already"

    async def many() -> None:
        await asyncio.gather(*(releases(shared_cell, tmp_path / "other").load(package) for _ in range(3)))

    asyncio.run(many())


@requirement("host:nodes-packages")
def test_files_that_were_changed_on_the_node_are_refused(shared_cell: Cell, tmp_path: Path) -> None:
    package, _ = shared_cell.push(shared_cell.publisher.pack())
    made = releases(shared_cell, tmp_path)
    program = load(made, package) / "bin" / "plugin"
    program.chmod(0o755)
    program.write_text("#!/bin/sh\n")
    assert refusal(made, package) == Reason.TAMPERED


@requirement("host:nodes-packages")
def test_a_key_that_was_revoked_meanwhile_counts(shared_cell: Cell, tmp_path: Path) -> None:
    package, _ = shared_cell.push(shared_cell.publisher.pack())
    copied = tmp_path / "trust.json"
    copied.write_bytes(shared_cell.trust.read_bytes())
    trust = TrustStore(copied)
    made = NodeReleases(tmp_path / "packages", trust, lambda: SIGNED_AT)
    load(made, package)
    trust.revoke(shared_cell.publisher.key_id)
    assert refusal(made, package) == Reason.KEY_REVOKED


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tree": "f" * 64}, Reason.TAMPERED),
        ({"version": "2.0.0"}, Reason.TAMPERED),
        ({"source": "oci://127.0.0.1:1/p:1.0.0"}, Reason.NOT_FOUND),
        ({"source": "nonsense"}, Reason.NOT_FOUND),
    ],
)
def test_a_gateway_that_names_other_files_gets_nothing_run(
    shared_cell: Cell, tmp_path: Path, fields: dict[str, str], reason: Reason
) -> None:
    package, _ = shared_cell.push(shared_cell.publisher.pack())
    assert refusal(releases(shared_cell, tmp_path), replace(package, **fields)) == reason


def test_an_unsigned_package_needs_the_permission_of_the_operator(shared_cell: Cell, tmp_path: Path) -> None:
    from plugbay.packages.archive import signature_path
    from plugbay.packages.connection import PUSH, Connection
    from plugbay.packages.reference import parse
    from plugbay.packages.registry import push

    packed = shared_cell.publisher.pack()
    signature_path(packed.path).unlink(missing_ok=True)
    reference = parse(f"oci://{shared_cell.registry}/plugbay/unsigned:1.0.0")
    with Connection(reference, plain_http=True, actions=PUSH) as connection:
        source = str(push(connection, reference, packed.path, {}).reference)
    package = Package("acme/p", "1.0.0", packed.package.tree_sha256, source)
    assert refusal(releases(shared_cell, tmp_path / "strict"), package) == Reason.UNSIGNED
    assert load(releases(shared_cell, tmp_path / "lax", require_signature=False), package).is_dir()
