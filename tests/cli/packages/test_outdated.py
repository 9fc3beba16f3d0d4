"""`plugbay outdated` and `plugbay upgrade --all`, with a real registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Done, Run
from tests.packages.builders import key, pack, sign, trust
from tests.packages.registry_server import serve
from tests.support.requirements import requirement

HERE = ("--store", "store", "--plain-http")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def push(run: Run, cwd: Path, tmp_path: Path, registry: str, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Push a signed release to a repository of this test; returns its reference."""
    acme = key()
    trust(tmp_path / ".config" / "plugbay" / "trust.json", (acme, "acme"))

    def push(name: str, version: str, *, tag: str = "", plugin_id: str = "", **manifest: object) -> str:
        root = cwd / f"{name}-{version}-{tag}"
        package = sign(pack(root, version, plugin_id or f"acme.{name}", **manifest), acme)
        reference = f"oci://{registry}/{request.node.name[:40].strip('_')}/{name}:{tag or version}"
        done = run("push", package, reference, "--plain-http")
        assert done.code == 0, done.err
        return reference

    return push


def install(run: Run, reference: str | Path) -> None:
    done = run("install", reference, *HERE)
    assert done.code == 0, done.err


def statuses(done: Done) -> dict[str, str]:
    return {each["id"]: each["status"] for each in done.json["plugins"]}


@requirement("vai:package-oci")
def test_newer_releases_are_listed(run: Run, push: Callable[..., str]) -> None:
    install(run, push("tea", "1.0.0"))
    install(run, push("milk", "1.0.0", tag="stable"))
    install(run, push("cups", "1.0.0"))
    assert run("outdated", *HERE).code == 0
    newer = push("tea", "1.10.0")
    shown = run("outdated", *HERE, "--json")
    assert shown.code == 9
    found = {each["id"]: each for each in shown.json["plugins"]}
    tea = found["acme.tea"]
    assert (tea["status"], tea["version"], tea["latest"], tea["reference"]) == ("outdated", "1.0.0", "1.10.0", newer)
    assert found["acme.cups"]["status"] == "current"
    assert (found["acme.milk"]["status"], "no tag of" in found["acme.milk"]["reason"]) == ("unknown", True)
    table = run("outdated", *HERE)
    assert table.code == 9 and "acme.tea   1.0.0" in table.out and "1.10.0" in table.out


def test_a_release_from_a_file_and_a_registry_that_is_gone_are_unknown(
    run: Run, cwd: Path, tmp_path: Path, push: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = pack(cwd / "file", "1.0.0", "acme.file")
    assert run("install", package, *HERE, "--allow-unsigned").code == 0
    with serve(tmp_path_factory.mktemp("gone")) as address:
        gone = pack(cwd / "gone", "1.0.0", "acme.gone")
        assert run("push", gone, f"oci://{address}/acme/gone", "--plain-http").code == 0
        assert run("install", f"oci://{address}/acme/gone:1.0.0", *HERE, "--allow-unsigned").code == 0
    shown = run("outdated", *HERE, "--json")
    found = {each["id"]: each for each in shown.json["plugins"]}
    assert shown.code == 0
    assert found["acme.file"]["reason"] == f"it was installed from the file {package.name}"
    assert found["acme.gone"]["status"] == "unknown" and "cannot be reached" in found["acme.gone"]["reason"]
    install(run, push("tea", "1.0.0"))
    push("tea", "1.1.0")
    done = run("upgrade", "--all", *HERE, "--json")
    assert statuses(done) == {"acme.file": "unknown", "acme.gone": "failed", "acme.tea": "upgraded"}
    assert done.code == 1, "the registry failed"


@requirement("vai:package-permissions-shown")
def test_all_plugins_are_upgraded_and_one_failure_stops_no_other(run: Run, push: Callable[..., str], cwd: Path) -> None:
    for name in ("asks", "pinned", "same", "swapped", "zebra"):
        install(run, push(name, "1.0.0"))
    run("pin", "acme.pinned", "--store", "store")
    push("asks", "2.0.0", capabilities=["mail"])
    push("pinned", "2.0.0")
    push("swapped", "2.0.0", plugin_id="acme.other")
    push("zebra", "1.0.1")
    done = run("upgrade", "--all", *HERE)
    assert done.code == 6, "another plugin in the repository is worse than a consent that is missing"
    assert "+ requests mail" in done.err
    rows = {line.split()[0]: line for line in done.out.splitlines()}
    assert "requests more capabilities" in rows["acme.asks"] and "holds acme.other" in rows["acme.swapped"]
    listed = {each["id"]: each["version"] for each in run("list", "--store", "store", "--json").json["plugins"]}
    assert listed == {
        "acme.asks": "1.0.0",
        "acme.pinned": "1.0.0",
        "acme.same": "1.0.0",
        "acme.swapped": "1.0.0",
        "acme.zebra": "1.0.1",
    }
    again = run("upgrade", "--all", "--yes", *HERE, "--json")
    assert statuses(again) == {
        "acme.asks": "upgraded",
        "acme.pinned": "pinned",
        "acme.same": "current",
        "acme.swapped": "failed",
        "acme.zebra": "current",
    }
    refused = {each["id"]: each["refused"] for each in again.json["plugins"]}["acme.swapped"]
    assert (again.code, refused["reason"]) == (6, "identity_mismatch")


def test_an_upgrade_names_one_package_or_all(run: Run) -> None:
    assert run("upgrade").code == run("upgrade", "x.tgz", "--all").code == 2
    empty = run("upgrade", "--all", *HERE)
    assert empty.code == 0 and "no plugin is installed" in empty.err
    assert run("upgrade", "--all", *HERE, "--json").json == {"plugins": []}
    assert run("outdated", *HERE, "--json").json == {"plugins": []}
