"""Versions, differences between releases, and installing, upgrading, rolling back, and being killed."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from plugbay import SyncHost
from plugbay.model.spec import Export, PluginSpec, SandboxRequest, SettingsSpec
from plugbay.packages import archive
from plugbay.packages.archive import signature_path
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import STEPS, Installer, asks, difference, is_older, verify
from plugbay.packages.package import SIGNATURE_NAME, read_folder
from plugbay.packages.rules import DEFAULT_LIMITS
from plugbay.packages.store import KEPT_RELEASES
from plugbay.packages.unpack import Archive
from tests.packages.builders import NOW, PLUGIN, Bench, key, pack, plugin, sign, tarball, trust
from tests.support.ainb import write_ainb_plugin
from tests.support.commands import Piped, python
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.packaged import remove_release
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import write_vai_plugin

SEMVER = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
ORDER = ["0", "0.0.1", "0.9", *SEMVER, "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2", "1.10.0", "2", "10.0.0", "20261115.1"]


def test_versions_have_the_order_of_semver_and_of_common_sense() -> None:
    for older, newer in itertools.combinations(ORDER, 2):
        assert is_older(older, newer), (older, newer)
        assert not is_older(newer, older), (older, newer)


@pytest.mark.parametrize(
    "pair", [("1.0.0", "1.0.0"), ("1.0.0+a", "1.0.0+b"), ("1", "1.0.0"), ("v1.2", "1.2"), ("1.02", "1.2")]
)
def test_these_are_equally_old(pair: tuple[str, str]) -> None:
    assert not is_older(*pair) and not is_older(*reversed(pair))


def test_words_and_very_long_numbers_have_an_order_too() -> None:
    assert is_older("1.0a", "1.0b")
    assert is_older("9" * 5000, "1" + "0" * 5000)


def spec(**facts: Any) -> PluginSpec:
    return PluginSpec("p", "1", "rune", Path("/p"), ("./p",), **facts)


CLOSED = SandboxRequest()


@requirement("vai:package-permissions-shown")
def test_everything_a_plugin_wants_is_in_neutral_words() -> None:
    wants = spec(
        capabilities=("net:a.example",),
        optional_capabilities=("memory.recall",),
        sandbox=SandboxRequest(host_network=True, read=("/r",), write=("/w",)),
        env_inherit=("HOME",),
        subscribes=("news.>",),
        snapshots=("usage.today",),
        publishes=("mine.>",),
        settings=SettingsSpec(secrets_schema={"properties": {"token": {}}}),
    )
    assert asks(wants) == (
        "net:a.example",
        "may ask for memory.recall",
        "the host's network",
        "reads /r",
        "writes /w",
        "variable HOME",
        "hears news.>",
        "hears usage.today",
        "publishes mine.>",
        "secret token",
    )


def test_a_plugin_that_wants_nothing_asks_for_nothing() -> None:
    assert asks(spec(sandbox=CLOSED)) == ()


@requirement("vai:package-permissions-shown")
def test_only_new_permissions_need_consent() -> None:
    before = spec(capabilities=("a", "b"), exports=(Export("tool", "old"), Export("tool", "both")), sandbox=CLOSED)
    after = spec(capabilities=("b", "c"), exports=(Export("tool", "both"), Export("hook", "new")), sandbox=CLOSED)
    found = difference(before, after)
    assert (found.asked, found.dropped) == (("c",), ("a",))
    assert (found.added_exports, found.removed_exports) == (("hook new",), ("tool old",))
    assert found.to_json()["asked"] == ["c"]


def test_giving_up_its_sandbox_is_something_to_agree_to() -> None:
    assert difference(spec(sandbox=CLOSED), spec()).asked == ("no sandbox of its own",)
    assert difference(spec(), spec(sandbox=CLOSED)).asked == ()


@requirement("vai:package-permissions-shown")
def test_a_permission_of_another_export_needs_consent() -> None:
    def release(*words: str) -> PluginSpec:
        exports = (Export("tool", "fetch", capabilities=("network",)), Export("tool", "sum", capabilities=words))
        return spec(capabilities=("network", *words), exports=exports, sandbox=CLOSED)

    assert difference(release(), release("network")).asked == ("network for tool sum",)
    assert difference(release("network"), release()).asked == ()
    assert difference(release(), release("files")).asked == ("files",)


def test_becoming_a_plugin_of_another_contract_has_to_be_agreed_to() -> None:
    other = PluginSpec("p", "2", "nexo", Path("/p"), ("./p",), sandbox=CLOSED)
    assert difference(spec(sandbox=CLOSED), other).asked == ("another contract, nexo",)


def version_called(bench: Bench) -> str:
    """Call the installed plugin."""
    with SyncHost.load(bench.store.plugins) as host:
        answer: dict[str, str] = host.call("t", {})
        return answer["version"]


def reason_of(bench: Bench, package: Path, **options: bool) -> Reason:
    before = sorted(bench.store.root.rglob("*"))
    with pytest.raises(PackageRefused) as caught:
        bench.install(package, **options)
    after = sorted(bench.store.root.rglob("*"))
    folders = {bench.store.root / name for name in ("", "plugins", "packages", "state", "tmp")}
    assert set(after) - folders == set(before) - folders, "a refusal changes nothing"
    return caught.value.reason


def repacked(package: Path, **changes: bytes | None) -> Path:
    """The same package with files changed, added or removed (None), and its old signature."""
    with open(package, "rb") as file:
        files = {member.name: b"".join(member.body) for member in Archive(file, DEFAULT_LIMITS)}
    kept = {name: data for name, data in {**files, **changes}.items() if data is not None}
    package.write_bytes(tarball(*kept.items()))
    return package


# Verification.


@requirement("vai:package-trusted-signature")
def test_a_package_signed_by_a_trusted_key_is_installed_and_answers(bench: Bench) -> None:
    assert bench.install(bench.release("1.0.0")) == "1.0.0"
    assert version_called(bench) == "1.0.0"
    installed = bench.store.find(PLUGIN)
    assert installed is not None
    assert (installed.current.contract, installed.current.installed_at) == ("rune", "2026-11-15T12:00:00Z")
    assert installed.current.key_id == bench.trust.keys()[0].key_id


@requirement("vai:package-every-contract")
def test_plugins_of_every_contract_are_installed_side_by_side(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    folders = {
        "rune": plugin(tmp_path / "rune"),
        "nexo": write_nexo_plugin(tmp_path / "nexo", "nexo_notes"),
        "kaged": write_kaged_plugin(tmp_path / "kaged", "kaged-notes"),
        "ainb": write_ainb_plugin(tmp_path / "ainb", "ainb-notes"),
        "vai": write_vai_plugin(tmp_path / "vai", package="acme/notes"),
    }
    for folder in folders.values():
        bench.install(archive.pack(folder, tmp_path).path, allow_unsigned=True)
    assert {item.current.contract for item in bench.store.installed()} == set(folders)
    with SyncHost.load(bench.store.plugins, eager=False) as host:
        assert {status.spec.contract for status in host.plugins()} == set(folders)


@requirement("vai:package-every-contract")
def test_a_package_whose_id_has_a_slash_is_installed_called_and_removed(bench: Bench, tmp_path: Path) -> None:
    package = sign(archive.pack(write_vai_plugin(tmp_path, package="acme/devkit"), tmp_path).path, bench.key)
    assert package.name == "acme%2Fdevkit-1.0.0.tar.gz"
    bench.install(package)
    assert [(item.id, item.folder.name) for item in bench.store.installed()] == [("acme/devkit", "acme%2Fdevkit")]
    with SyncHost.load(bench.store.plugins) as host:
        assert host.call("acme/devkit/t", {"n": 1})["structured_output"]["input"] == {"n": 1}
    bench.installer.uninstall("acme/devkit")
    assert os.listdir(bench.store.plugins) == os.listdir(bench.store.root / "packages") == []


@pytest.mark.parametrize("plugin_id", ["package", "parcel", "tmp"])
def test_no_id_is_in_the_way_of_its_own_installation(bench: Bench, tmp_path: Path, plugin_id: str) -> None:
    assert bench.install(pack(tmp_path, plugin_id=plugin_id), allow_unsigned=True) == "1.0.0"


@requirement("vai:package-trusted-signature")
def test_an_unsigned_package_needs_the_operators_word(bench: Bench, tmp_path: Path) -> None:
    package = pack(tmp_path)
    assert reason_of(bench, package) is Reason.UNSIGNED
    assert bench.install(package, allow_unsigned=True) == "1.0.0"
    installed = bench.store.find(PLUGIN)
    assert installed is not None and installed.current.key_id is None


def test_the_operators_word_for_unsigned_packages_is_no_word_for_bad_signatures(bench: Bench) -> None:
    package = bench.edit_signature(bench.release("1.0.0"), version="1.0.1")
    assert reason_of(bench, package, allow_unsigned=True) is Reason.SIGNATURE_INVALID


@requirement("vai:package-tampered")
def test_a_tampered_byte_is_refused(bench: Bench) -> None:
    assert reason_of(bench, repacked(bench.release("1.0.0"), **{"run.sh": b"#!/bin/sh\n"})) is Reason.TAMPERED


@requirement("vai:package-extra-file")
def test_an_extra_file_is_refused(bench: Bench) -> None:
    assert reason_of(bench, repacked(bench.release("1.0.0"), extra=b"x")) is Reason.EXTRA_FILE


@requirement("vai:package-missing-file")
def test_a_missing_file_is_refused(bench: Bench) -> None:
    assert reason_of(bench, repacked(bench.release("1.0.0"), **{"run.sh": None})) is Reason.MISSING_FILE


def test_a_package_that_was_packed_again_without_a_change_is_still_signed(bench: Bench) -> None:
    assert bench.install(repacked(bench.release("1.0.0"))) == "1.0.0"


@requirement("vai:package-unknown-key")
def test_an_untrusted_key_is_refused(bench: Bench, tmp_path: Path) -> None:
    assert reason_of(bench, sign(pack(tmp_path), key())) is Reason.KEY_UNKNOWN


@requirement("vai:package-other-publisher")
def test_the_key_of_another_publisher_is_refused(bench: Bench, tmp_path: Path) -> None:
    other = key()
    trust(bench.trust.path, (other, "evil"))
    assert reason_of(bench, sign(pack(tmp_path), other)) is Reason.KEY_OF_OTHER_PUBLISHER


@requirement("vai:package-edited-version")
def test_an_edited_version_is_refused(bench: Bench) -> None:
    package = bench.release("1.0.0")
    manifest = json.loads((bench.root / "release-1.0.0-0/src/1.0.0" / PLUGIN / "rterm-plugin.json").read_bytes())
    newer = json.dumps(manifest | {"plugin_version": "2.0.0"}).encode()
    assert reason_of(bench, repacked(package, **{"rterm-plugin.json": newer})) is Reason.IDENTITY_MISMATCH
    bench.edit_signature(package, version="2.0.0")
    assert reason_of(bench, package) is Reason.SIGNATURE_INVALID


@requirement("vai:package-key-revocation")
def test_a_package_of_a_revoked_key_is_refused_and_an_installed_one_stays(bench: Bench) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(one)
    bench.trust.revoke(bench.trust.keys()[0].key_id)
    assert reason_of(bench, two) is Reason.KEY_REVOKED
    assert version_called(bench) == "1.0.0"


def test_the_signature_may_also_be_inside_the_archive(bench: Bench) -> None:
    package = bench.release("1.0.0")
    data = signature_path(package).read_bytes()
    signature_path(package).unlink()
    assert bench.install(repacked(package, **{SIGNATURE_NAME: data})) == "1.0.0"


@pytest.mark.parametrize("mode", [0o000, 0o644, 0o777, 0o4755])
def test_a_mirror_that_changes_the_modes_of_a_signed_package_changes_nothing(bench: Bench, mode: int) -> None:
    package = bench.release("1.0.0")
    with open(package, "rb") as file:
        members = [(member.name, b"".join(member.body)) for member in Archive(file, DEFAULT_LIMITS)]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    package.write_bytes(buffer.getvalue())
    assert bench.install(package) == "1.0.0"
    assert version_called(bench) == "1.0.0"
    release = bench.store.plugins / PLUGIN
    modes = {path.name: path.stat().st_mode & 0o7777 for path in release.iterdir()}
    assert (modes["run.sh"], modes["rterm-plugin.json"]) == (0o555, 0o444)


def test_an_installed_folder_can_be_verified_where_it_is(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    folder = bench.store.plugins / PLUGIN
    data = (folder / SIGNATURE_NAME).read_bytes()
    assert verify(read_folder(folder, to_pack=False), data, bench.trust, NOW).signature.version == "1.0.0"
    (folder / "run.sh").chmod(0o755)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    with pytest.raises(PackageRefused) as caught:
        verify(read_folder(folder, to_pack=False), data, bench.trust, NOW)
    assert caught.value.reason is Reason.TAMPERED


# Versions.


@requirement("vai:package-replay")
def test_a_downgrade_is_refused_unless_the_operator_says_so(bench: Bench) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(two)
    assert reason_of(bench, one) is Reason.DOWNGRADE
    assert version_called(bench) == "2.0.0"
    assert bench.install(one, allow_downgrade=True) == "1.0.0"
    assert version_called(bench) == "1.0.0"


@requirement("vai:package-replay")
def test_an_old_package_is_a_replay_also_after_a_rollback_and_after_uninstalling(bench: Bench) -> None:
    one, two, three = (bench.release(f"{number}.0.0") for number in (1, 2, 3))
    bench.install(one)
    bench.install(three)
    bench.installer.rollback(PLUGIN)
    assert reason_of(bench, two) is Reason.REPLAYED
    bench.installer.uninstall(PLUGIN)
    assert bench.store.installed() == []
    assert reason_of(bench, two) is Reason.REPLAYED
    assert bench.install(three) == "3.0.0"


@requirement("vai:package-immutable")
def test_a_version_has_one_contents_forever(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    other = bench.release("1.0.0", description="other")
    assert reason_of(bench, other) is Reason.VERSION_CONFLICT
    assert reason_of(bench, other, allow_downgrade=True) is Reason.VERSION_CONFLICT
    bench.installer.uninstall(PLUGIN)
    assert reason_of(bench, other) is Reason.VERSION_CONFLICT


def test_installing_an_installed_release_changes_nothing(bench: Bench) -> None:
    one = bench.release("1.0.0")
    bench.install(one)
    before = bench.store.find(PLUGIN)
    bench.install(one)
    assert bench.store.find(PLUGIN) == before


@requirement("vai:package-immutable")
def test_installing_an_installed_release_restores_missing_files_and_reports_changed_ones(bench: Bench) -> None:
    one = bench.release("1.0.0")
    bench.install(one)
    release = (bench.store.plugins / PLUGIN).resolve()
    remove_release(release)
    assert bench.install(one) == "1.0.0"
    assert version_called(bench) == "1.0.0"
    release.chmod(0o755)
    (release / "run.sh").unlink()
    assert reason_of(bench, one) is Reason.TAMPERED


def test_a_package_that_was_installed_meanwhile_counts_as_installed(bench: Bench) -> None:
    one = bench.release("1.0.0")
    with bench.installer.candidate(one) as candidate:
        bench.install(one)
        assert bench.installer.install(candidate).current.version == "1.0.0"


@requirement("vai:package-permissions-shown")
def test_a_look_has_all_facts_and_changes_nothing(bench: Bench) -> None:
    bench.install(bench.release("1.0.0", capabilities=["a", "b"]))
    before = bench.store.find(PLUGIN)
    look = bench.installer.look(bench.release("2.0.0", capabilities=["b", "c"]))
    assert (look.spec.version, look.files, look.unchanged, look.refused) == ("2.0.0", 2, False, None)
    assert look.verified is not None and look.verified.key.publisher == "acme"
    assert look.difference is not None and look.difference.asked == ("c",)
    assert look.before == before == bench.store.find(PLUGIN)
    assert list((bench.store.root / "tmp").iterdir()) == []


def test_a_look_names_the_refusal_of_the_installation(bench: Bench, tmp_path: Path) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(two)
    bench.installer.pin(PLUGIN, True)
    assert bench.installer.look(two).unchanged and bench.installer.look(two).refused is None
    unsigned = pack(tmp_path / "unsigned", "3.0.0")
    expected = {bench.release("3.0.0"): Reason.PINNED, unsigned: Reason.UNSIGNED}
    for package, reason in expected.items():
        refused = bench.installer.look(package).refused
        assert refused is not None and refused.reason is reason is reason_of(bench, package)
    bench.installer.pin(PLUGIN, False)
    refused = bench.installer.look(one).refused
    assert refused is not None and refused.reason is Reason.DOWNGRADE is reason_of(bench, one)
    allowed = bench.installer.look(unsigned, allow_unsigned=True)
    assert allowed.refused is None and allowed.verified is None


def test_a_rollback_is_looked_at_and_goes_only_to_the_release_that_was_shown(bench: Bench) -> None:
    for version, words in (("1.0.0", ["a"]), ("2.0.0", ["b"]), ("3.0.0", ["b"])):
        bench.install(bench.release(version, capabilities=words))
    shown = bench.installer.look_back(PLUGIN)
    assert (shown.installed.current.version, shown.release.version) == ("3.0.0", "2.0.0")
    bench.installer.rollback(PLUGIN)
    with pytest.raises(PackageRefused) as refused:
        bench.installer.rollback(PLUGIN, shown.release.digest)
    assert refused.value.reason is Reason.CHANGED_MEANWHILE
    again = bench.installer.look_back(PLUGIN)
    assert again.difference is not None and (again.difference.asked, again.difference.dropped) == (("a",), ("b",))
    assert bench.installer.rollback(PLUGIN, again.release.digest).current.version == "1.0.0"
    with pytest.raises(PackageRefused) as refused:
        bench.installer.look_back(PLUGIN)
    assert refused.value.reason is Reason.NO_EARLIER_RELEASE


def test_a_rollback_to_files_that_cannot_be_read_has_no_differences(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    bench.install(bench.release("2.0.0"))
    remove_release(bench.store.package_folder(bench.installer.look_back(PLUGIN).release.digest, PLUGIN))
    assert bench.installer.look_back(PLUGIN).difference is None


def test_a_candidate_lists_the_permissions_that_the_installed_release_lacks(bench: Bench) -> None:
    bench.install(bench.release("1.0.0", capabilities=["a", "b"]))
    with bench.installer.candidate(bench.release("2.0.0", capabilities=["b", "c"])) as candidate:
        assert candidate.difference is not None
        assert (candidate.difference.asked, candidate.difference.dropped) == (("c",), ("a",))


# Upgrade and rollback.


def test_rollback_goes_back_release_by_release_and_an_upgrade_goes_on_from_there(bench: Bench) -> None:
    releases = {number: bench.release(f"{number}.0.0") for number in (1, 2, 3, 4)}
    for number in (1, 2, 3):
        bench.install(releases[number])
    assert bench.installer.rollback(PLUGIN).current.version == "2.0.0"
    assert bench.installer.rollback(PLUGIN).current.version == "1.0.0"
    assert version_called(bench) == "1.0.0"
    with pytest.raises(PackageRefused) as caught:
        bench.installer.rollback(PLUGIN)
    assert caught.value.reason is Reason.NO_EARLIER_RELEASE
    bench.install(releases[4])
    assert bench.installer.rollback(PLUGIN).current.version == "1.0.0"


def test_a_rollback_to_missing_files_is_refused(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    old = (bench.store.plugins / PLUGIN).resolve()
    bench.install(bench.release("2.0.0"))
    remove_release(old)
    with pytest.raises(PackageRefused) as caught:
        bench.installer.rollback(PLUGIN)
    assert caught.value.reason is Reason.MISSING_FILE
    assert version_called(bench) == "2.0.0"


def test_the_invalid_state_of_one_plugin_does_not_block_others(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    (bench.store.root / "state" / "other.json").write_text("{")
    assert bench.install(bench.release("2.0.0")) == "2.0.0"
    bench.installer.uninstall(PLUGIN)
    assert os.listdir(bench.store.plugins) == []
    assert len(os.listdir(bench.store.root / "packages")) == 2, "who knows what the other one needs"


def test_a_pin_holds_until_it_is_taken_away(bench: Bench) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(one)
    assert bench.installer.pin(PLUGIN, True).state.pinned
    assert reason_of(bench, two) is Reason.PINNED
    with pytest.raises(PackageRefused) as caught:
        bench.installer.rollback(PLUGIN)
    assert caught.value.reason is Reason.PINNED
    bench.installer.pin(PLUGIN, False)
    assert bench.install(two) == "2.0.0"


def test_only_so_many_releases_are_kept(bench: Bench) -> None:
    for number in range(KEPT_RELEASES + 2):
        bench.install(bench.release(f"1.{number}.0"))
    installed = bench.store.find(PLUGIN)
    assert installed is not None
    assert len(installed.state.releases) == KEPT_RELEASES
    assert len(os.listdir(bench.store.root / "packages")) == KEPT_RELEASES


def test_uninstalling_leaves_a_memory_and_no_files(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    bench.installer.uninstall(PLUGIN)
    assert os.listdir(bench.store.plugins) == os.listdir(bench.store.root / "packages") == []
    with pytest.raises(PackageRefused) as caught:
        bench.installer.uninstall(PLUGIN)
    assert caught.value.reason is Reason.NOT_INSTALLED


def test_a_plugin_changed_meanwhile_must_be_compared_again(bench: Bench) -> None:
    one, two, three = (bench.release(f"{number}.0.0") for number in (1, 2, 3))
    bench.install(one)
    with bench.installer.candidate(three) as candidate:
        bench.install(two)
        with pytest.raises(PackageRefused) as caught:
            bench.installer.install(candidate)
    assert caught.value.reason is Reason.CHANGED_MEANWHILE
    assert version_called(bench) == "2.0.0"


# Killed processes.

KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore

root, package, fatal = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def step(name):
    if name == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

now = lambda: datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
installer = Installer(Store(root / "store"), TrustStore(root / "trust.json"), now, step=step)
with installer.candidate(package) as candidate:
    installer.install(candidate)
"""


def killed_at(bench: Bench, package: Path, step: str) -> int:
    return python(KILLED, bench.root, package, step).returncode


def assert_clean(bench: Bench, releases: int) -> None:
    """No leftovers remain after the next change."""
    with bench.store.locked():
        bench.store.sweep()
    assert os.listdir(bench.store.root / "tmp") == []
    assert len(os.listdir(bench.store.root / "packages")) == releases


@requirement("vai:package-atomic")
@pytest.mark.parametrize("step", STEPS)
def test_an_installation_killed_at_any_step_is_there_or_not_and_can_be_repeated(bench: Bench, step: str) -> None:
    package = bench.release("1.0.0")
    assert killed_at(bench, package, step) == -9
    done = STEPS.index(step) >= STEPS.index("switched")
    assert [item.current.version for item in bench.store.installed()] == (["1.0.0"] if done else [])
    assert os.listdir(bench.store.plugins) == ([PLUGIN] if done else [])
    assert bench.install(package) == "1.0.0"
    assert version_called(bench) == "1.0.0"
    assert_clean(bench, releases=1)


@requirement("vai:package-atomic")
@pytest.mark.parametrize("step", STEPS)
def test_an_upgrade_killed_at_any_step_leaves_the_old_or_the_new_release_working(bench: Bench, step: str) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(one)
    assert killed_at(bench, two, step) == -9
    expected = "2.0.0" if STEPS.index(step) >= STEPS.index("switched") else "1.0.0"
    assert version_called(bench) == expected
    assert bench.install(two) == "2.0.0"
    assert version_called(bench) == "2.0.0"
    assert bench.installer.rollback(PLUGIN).current.version == "1.0.0"
    assert version_called(bench) == "1.0.0"
    assert_clean(bench, releases=2)


@exhaustive
def test_several_processes_that_install_at_the_same_time_leave_one_working_release(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    packages = [bench.release(f"2.{number}.0") for number in range(4)]
    running = [Piped(bench.root, package, "never", code=KILLED) for package in packages]
    for process in running:
        process.communicate()
    codes = [process.returncode for process in running]
    assert 0 in codes
    assert version_called(bench) in {f"2.{number}.0" for number, code in enumerate(codes) if code == 0}
    installed = bench.store.find(PLUGIN)
    assert installed is not None
    assert_clean(bench, releases=len(installed.state.releases))


def test_the_same_program_upgrades_when_it_is_not_killed(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    assert killed_at(bench, bench.release("2.0.0"), "never") == 0
    assert version_called(bench) == "2.0.0"


def test_every_step_is_reported_in_order(bench: Bench) -> None:
    told: list[str] = []
    installer = Installer(bench.store, bench.trust, lambda: NOW, step=told.append)
    with installer.candidate(bench.release("1.0.0")) as candidate:
        installer.install(candidate)
    assert tuple(dict.fromkeys(told)) == STEPS


def test_an_error_at_any_step_before_the_last_leaves_the_old_release(bench: Bench) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(one)
    for fatal in STEPS[: STEPS.index("switched")]:

        def step(name: str, fatal: str = fatal) -> None:
            if name == fatal:
                raise OSError(28, "No space left on device")

        installer = Installer(bench.store, bench.trust, lambda: NOW, step=step)
        with pytest.raises(OSError), installer.candidate(two) as candidate:
            installer.install(candidate)
        assert version_called(bench) == "1.0.0"
    assert_clean(bench, releases=2)


ANYWHERE = """
import errno, os, shutil, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from plugbay.packages.package import all_files, hash_files
from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore

root, package, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
WATCHED = {"open", "os.mkdir", "os.rename", "os.symlink", "os.chmod", "os.remove", "os.rmdir", "fcntl.flock"}
left = 0

def watch(event, arguments):
    global left
    if event in WATCHED and left:
        left -= 1
        if not left and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")

def install(store):
    now = lambda: datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
    installer = Installer(store, TrustStore(root / "trust.json"), now)
    with installer.candidate(package) as candidate:
        return installer.install(candidate).current.version

def complete(store, version):
    installed, = store.installed()
    assert installed.current.version == version, (installed.current.version, version)
    assert hash_files(all_files(installed.folder.resolve())) == hash_files(all_files(expected[version])), version

def fresh(number):
    shutil.copytree(root / "store", root / f"store-{number}", symlinks=True)
    return Store(root / f"store-{number}")

sys.addaudithook(watch)
old, new = Store(root / "store"), fresh("new")
install(new)  # everything that is imported on the way is there now
expected = {name: store.plugins.joinpath("acme.notes").resolve() for name, store in (("1.0.0", old), ("2.0.0", new))}
number = 0
while True:
    number += 1
    store = fresh(number)
    child = os.fork()
    if not child:
        left = number
        try:
            install(store)
        except Exception:
            os._exit(1 if left == 0 else 2)
        os._exit(0 if left else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {-9, 0, 1, 3}, status
    [version] = [item.current.version for item in store.installed()]
    assert version == "2.0.0" or status in {-9, 1}, "who is told nothing has the new release"
    complete(store, version)
    assert install(store) == "2.0.0"
    complete(store, "2.0.0")
    with store.locked():
        store.sweep()
    assert not os.listdir(store.root / "tmp") and len(os.listdir(store.root / "packages")) == 2
    if status == 0:
        break
print(number)
"""


@exhaustive
@requirement("vai:package-atomic")
@pytest.mark.parametrize("how", ["killed", "failed"])
def test_an_upgrade_that_ends_before_any_of_its_changes_leaves_a_whole_release(bench: Bench, how: str) -> None:
    bench.install(bench.release("1.0.0"))
    command = [sys.executable, "-c", ANYWHERE, str(bench.root), str(bench.release("2.0.0")), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 40, "so many times somebody opens, renames or removes something"
