"""From manifest, grants and plugbay.toml to a sandbox policy: confined, exempt or refused; which paths are shown."""

from __future__ import annotations

import os
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay import Host
from plugbay.host.config.sections import PluginSandbox, ProcessLimits, SandboxConfig
from plugbay.host.confinement.policy import (
    HITS_DENYLIST,
    ONE_RUN,
    RESOLUTION_FAILED,
    Confinement,
    Operator,
    PathRefused,
    Paths,
    Places,
    change_owner,
    confine,
    make_cover_target,
    make_own_folder,
    own_folder,
    proxy_variables,
    sandbox_environ,
)
from plugbay.model.errors import Code, Origin
from plugbay.model.protected import DATABASE, SETTINGS, Entry, Protected
from plugbay.model.spec import Access, PluginSpec, SandboxRequest
from plugbay.process.sandbox.policy import MIB, Endpoint, Limits, Network, Policy, Reach
from tests.support.ainb import write_ainb_plugin
from tests.support.invoking import host_of, raw_host_of, with_host
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.machine import needs_root
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

ASKS = SandboxRequest()


def spec(sandbox: SandboxRequest | None = ASKS, **fields: Any) -> PluginSpec:
    return PluginSpec("p", "1", "any", Path("/p"), ("x",), sandbox=sandbox, **fields)


def operator(one_run: bool = False, private: tuple[str, ...] = (), require: bool = False, **own: Any) -> Operator:
    return Operator(PluginSandbox(**own), SandboxConfig(require=require), private, one_run)


def policy_of(
    plugin: PluginSpec, granted: tuple[Access, ...] = (), said: Operator | None = None, places: Places | None = None
) -> Policy:
    found = confine(plugin, granted, said or operator(), places or Places())
    assert (found.refusal, found.downgrade) == (None, False)
    assert found.policy is not None
    return found.policy


# Who is confined.


@pytest.mark.parametrize(
    ("sandbox", "said", "shown", "downgrade"),
    [
        (ASKS, operator(), "confined", False),
        (None, operator(), "unconfined: its manifest does not ask for it", False),
        (None, operator(on=True), "confined", False),
        (None, operator(read=["/usr"]), "confined", False),
        (None, operator(require=True), "confined", False),
        (ASKS, operator(off="it is ours"), "unconfined: it is ours", True),
        (ASKS, operator(require=True, off="it is ours"), "unconfined: it is ours", True),
        (None, operator(require=True, off="it is ours"), "unconfined: it is ours", True),
        (None, operator(off="it is ours"), "unconfined: it is ours", False),
        (ASKS, operator(one_run=True), f"unconfined: {ONE_RUN}", True),
        (None, operator(one_run=True, on=True), f"unconfined: {ONE_RUN}", True),
        (None, operator(one_run=True), "unconfined: its manifest does not ask for it", False),
    ],
)
def test_which_plugins_are_confined(
    sandbox: SandboxRequest | None, said: Operator, shown: str, downgrade: bool
) -> None:
    found = confine(spec(sandbox), (), said, Places())
    assert (str(found), found.downgrade, found.refusal) == (shown, downgrade, None)


def test_where_confinement_is_required_no_plugin_is_exempt_for_one_run() -> None:
    refusal = confine(spec(), (), operator(require=True, one_run=True), Places()).refusal
    assert refusal is not None and "[sandbox] require = true" in refusal.message
    assert (refusal.code, refusal.origin) == (Code.SANDBOX_UNAVAILABLE, Origin.POLICY)
    assert 'off = "the reason why"' in refusal.detail["hint"]


@requirement("nexo:manifest-sandbox-require")
@pytest.mark.parametrize("said", [operator(off="it is ours"), operator(one_run=True)])
def test_where_the_environment_insists_no_plugin_is_exempt(said: Operator) -> None:
    refused = confine(spec(SandboxRequest(insists=True)), (), said, Places())
    assert refused.refusal is not None and str(refused).startswith("refused: the environment of this host requires")
    assert confine(spec(), (), said, Places()).refusal is None


# What it may see.


def test_deny_by_default() -> None:
    assert policy_of(spec()) == Policy(package=Path("/p"))


def test_granted_paths_are_shown_and_others_are_not(tmp_path: Path) -> None:
    granted = (
        Access("read_path", "/usr/share"),
        Access("write_path", str(tmp_path)),
        Access("run", "/opt"),
        Access("run"),
        Access("storage_read"),
        Access("topic", "/etc/shadow"),
    )
    policy = policy_of(spec(), granted)
    assert (policy.read, policy.write, policy.run) == ((Path("/usr/share"),), (tmp_path,), (Path("/opt"),))
    assert (policy.network, policy.state) == (Network(), None)


@requirement("kaged:exec-fence", "ainb:spawn-fence")
@pytest.mark.parametrize(
    ("granted", "fenced", "run"),
    [
        ((), True, ()),
        ((Access("run", "/usr/bin/env"),), True, (Path("/usr/bin/env"),)),
        ((Access("run", "env"),), True, (Path("/usr/bin/env"),)),
        ((Access("run"),), False, ()),
    ],
)
def test_a_contract_with_a_capability_for_programs_fences_the_others(
    granted: tuple[Access, ...], fenced: bool, run: tuple[Path, ...]
) -> None:
    policy = policy_of(spec(SandboxRequest(fenced=True)), granted)
    assert (policy.fenced, policy.run) == (fenced, run)


def test_the_operator_shows_more_to_one_and_to_all(tmp_path: Path) -> None:
    own = PluginSandbox(read=["/usr/share", str(tmp_path / "gone")], write=[str(tmp_path)], run=["/opt"])
    common = SandboxConfig(read=["/usr/lib"])
    found = confine(spec(), (), Operator(own, common), Places())
    assert found.policy is not None
    assert found.policy.read == (Path("/usr/lib"), Path("/usr/share"))
    assert (found.policy.write, found.policy.run) == ((tmp_path,), (Path("/opt"),))
    assert found.notes == (f"it may read {tmp_path}/gone, but that path does not exist",)
    assert found.to_json()["notes"] == list(found.notes)


@requirement("nexo:manifest-sandbox-denylist")
@pytest.mark.parametrize("kind", ["read_path", "write_path", "run"])
def test_a_grant_on_the_deny_list_is_a_refusal(kind: str) -> None:
    found = confine(spec(), [Access(kind, "/etc")], operator(), Places())
    assert found.refusal is not None and found.policy is None
    assert (found.refusal.code, found.refusal.origin) == (Code.SANDBOX_UNAVAILABLE, Origin.POLICY)
    assert found.refusal.detail["rule"] == "ResolvedPathHitsDenylist"
    assert str(found).startswith("refused: it cannot be confined as requested: /etc must not be visible to a plugin")


@requirement("nexo:manifest-sandbox-denylist")
def test_paths_that_the_contract_forbids_are_forbidden_behind_links_too(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "vault")
    asked = SandboxRequest(read=(str(tmp_path / "way"),))
    assert policy_of(spec(asked)).read == (tmp_path / "way",)
    refused = confine(spec(replace(asked, never=(str(tmp_path / "vault"),))), (), operator(), Places())
    assert refused.refusal is not None and refused.refusal.detail["rule"] == "ResolvedPathHitsDenylist"


@requirement("nexo:host-sandbox-state-dir")
def test_the_folder_for_state_is_the_plugins_own(tmp_path: Path) -> None:
    asked = SandboxRequest(read=("/usr/share",), write=("${state_dir}", "${state_dir}/cache", str(tmp_path)))
    own = own_folder(tmp_path / "state", "p")
    found = confine(spec(asked), (), operator(), Places(state=own))
    assert found.policy is not None
    assert (found.policy.state, found.policy.write, found.policy.read) == (own, (tmp_path,), (Path("/usr/share"),))
    assert found.own == (own, own / "cache")
    assert own == tmp_path / "state" / "plugins" / "p" and not own.exists()


@requirement("nexo:host-sandbox-state-dir")
def test_without_a_place_for_it_there_is_no_folder_for_state() -> None:
    refusal = confine(spec(SandboxRequest(write=("${state_dir}",))), (), operator(), Places()).refusal
    assert refusal is not None and refusal.detail["rule"] == "PathResolutionFailed"
    assert "state_dir" in refusal.detail["hint"]


def test_two_plugins_never_share_a_folder_whatever_they_are_called(tmp_path: Path) -> None:
    names = ("acme/p", "acme", "..", ".", "a/../b", "acme%2Fp")
    folders = {own_folder(tmp_path, name) for name in names}
    assert len(folders) == len(names)
    assert all(folder.parent == tmp_path / "plugins" for folder in folders)
    assert all(os.path.normpath(folder) == str(folder) for folder in folders)


def test_a_plugin_with_a_config_root_can_write_it(tmp_path: Path) -> None:
    told = (("KAGED_CONFIG_ROOT", "config.root"), ("KAGED_PROJECT_ROOT", "project.root"))
    project = tmp_path / "project"
    project.mkdir()
    places = Places(state=tmp_path / "own", project=project)
    found = confine(spec(env_facts=told), (), operator(), places)
    assert found.policy is not None
    assert (found.policy.state, found.own, found.policy.read) == (tmp_path / "own", (tmp_path / "own",), (project,))
    unnamed = confine(spec(env_facts=told), (), operator(), Places())
    assert unnamed.policy == Policy(package=Path("/p"))
    untold = confine(spec(), (), operator(), places)
    assert untold.policy == Policy(package=Path("/p"))


def test_a_folder_that_the_contract_gives_the_plugin_is_made_for_it(tmp_path: Path) -> None:
    granted = [Access("own_path", "~/.agents/plugins/p")]
    found = confine(spec(), granted, operator(), Places(home=tmp_path))
    folder = tmp_path / ".agents" / "plugins" / "p"
    assert found.policy is not None
    assert (found.policy.write, found.own, found.policy.state) == ((folder,), (folder,), None)


# What it may reach and use up.


@pytest.mark.parametrize(
    ("granted", "own", "network"),
    [
        ([], {}, Network()),
        ([Access("no_network")], {}, Network()),
        ([Access("network")], {}, Network(Reach.ANY, private=("10.0.0.1:80",))),
        (
            [
                Access("network", "API.example", 443),
                Access("network", "api.example", 443),
                Access("network", "b.example"),
            ],
            {},
            Network(Reach.LISTED, (Endpoint("api.example", 443), Endpoint("b.example")), ("10.0.0.1:80",)),
        ),
        ([], {"network": ["a.example:1"]}, Network(Reach.LISTED, (Endpoint("a.example", 1),), ("10.0.0.1:80",))),
        (
            [Access("network", "b.example")],
            {"network": ["a.example:1"]},
            Network(Reach.LISTED, (Endpoint("b.example"), Endpoint("a.example", 1)), ("10.0.0.1:80",)),
        ),
        ([Access("network", "b.example")], {"network": ["*"]}, Network(Reach.ANY, private=("10.0.0.1:80",))),
        ([Access("network", "b.example")], {"network": ["host"]}, Network(Reach.HOST)),
        ([Access("network", "bad host")], {}, Network()),
        ([Access("network", "2130706433")], {}, Network()),
    ],
)
def test_the_network_has_the_granted_endpoints_and_those_of_the_operator(
    granted: list[Access], own: dict[str, Any], network: Network
) -> None:
    assert policy_of(spec(), tuple(granted), operator(private=("10.0.0.1:80",), **own)).network == network


@requirement("host:network-explicit-private")
@pytest.mark.parametrize(
    ("access", "named", "own", "private"),
    [
        (Access("network", "127.0.0.1", 80, "net:127.0.0.1:80"), True, (), ("127.0.0.1:80",)),
        (Access("network", "192.168.1.5", 80, "net:192.168.1.5:80"), True, (), ("192.168.1.5:80",)),
        (Access("network", "fd00::1", 80, "net:[fd00::1]:80"), True, (), ("[fd00::1]:80",)),
        (Access("network", "localhost", 80, "net:localhost:80"), True, (), ("127.0.0.1:80", "[::1]:80")),
        (Access("network", "127.0.0.1", 80, "net:127.0.0.1:80"), False, (), ()),
        (Access("network", "127.0.0.1", 80, "network"), True, (), ()),
        (Access("network", "127.0.0.1", None, "net:127.0.0.1"), True, (), ()),
        (Access("network", "169.254.169.254", 80, "net:169.254.169.254:80"), True, (), ()),
        (Access("network", "inner.example", 80, "net:inner.example:80"), True, (), ()),
        (Access("network", "a.example", 1, "x"), False, ("127.0.0.1:80", "10.1.2.3:5"), ("127.0.0.1:80", "10.1.2.3:5")),
    ],
)
def test_a_private_address_that_the_operator_names_is_open(
    access: Access, named: bool, own: tuple[str, ...], private: tuple[str, ...]
) -> None:
    said = replace(operator(network=list(own)), named=frozenset({access.capability} if named else ()))
    assert policy_of(spec(), (access,), said).network.private == private


def test_a_host_that_is_none_is_left_out_and_named() -> None:
    assert confine(spec(), [Access("network", "0x7f.1")], operator(), Places()).notes == (
        "it may reach 0x7f.1, which is neither a host name nor an address",
    )


@requirement("nexo:manifest-sandbox-network")
def test_the_machines_own_network_is_for_those_whose_manifest_was_allowed_to_ask() -> None:
    assert policy_of(spec(SandboxRequest(host_network=True))).network == Network(Reach.HOST)


def test_limits_are_the_operators_for_all_and_for_one() -> None:
    common = SandboxConfig.model_validate({"limits": {"memory": "512 MiB", "cpu": 2.0}})
    own = PluginSandbox.model_validate({"limits": {"memory": "1 GiB", "processes": 9}})
    assert policy_of(spec(), said=Operator(own, common)).limits == Limits(memory=1024 * MIB, cpu=2.0, processes=9)


def test_the_more_particular_word_about_open_files_holds_and_less_than_usual_holds_as_well() -> None:
    common = SandboxConfig.model_validate({"limits": {"open_files": 100, "memory": "64 MiB"}})
    each = ProcessLimits(open_files=200)
    own = PluginSandbox.model_validate({"limits": {"open_files": 300}})
    usual = Limits(memory=64 * MIB)
    assert policy_of(spec(), said=Operator(common=common)).limits == changed(usual, open_files=100)
    assert policy_of(spec(), said=Operator(common=common, limits=each)).limits == changed(usual, open_files=200)
    assert policy_of(spec(), said=Operator(own, common, limits=each)).limits == changed(usual, open_files=300)


# What it comes to, in real children.


READS = """
def tool(name, params, m):
    done = {}
    for path in params["paths"]:
        try:
            done[path] = open(path).read()
        except OSError as error:
            done[path] = type(error).__name__
    reply(m, done)
"""


def test_a_plugin_reads_granted_paths_and_nothing_else(run: Run, tmp_path: Path) -> None:
    for name in ("shown", "hidden"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "file").write_text(name)
    paths = [str(tmp_path / name / "file") for name in ("shown", "hidden")]
    asked = [f"read:fs:{tmp_path / name}" for name in ("shown", "hidden")]
    root = write_kaged_plugin(tmp_path, body=READS, capabilities=asked)

    async def read(**options: Any) -> list[str]:
        async with Host.load(root, **options) as host:
            return list((await host.call("echo", {"paths": paths})).values())

    async def main() -> None:
        assert await read(grants=asked[:1]) == ["shown", "FileNotFoundError"]
        assert await read(grant_all=True) == ["shown", "hidden"]
        assert await read(grants=asked[:1], unconfined=True) == ["shown", "hidden"]

    run(main)


def test_the_state_of_an_ainb_plugin_is_in_the_folder_of_its_contract(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    def cli_dispatch(params, m):
        try:
            open(os.path.expanduser("~/.agents-in-a-box/plugins/keeper/kept"), "w").write("mine")
            said = b"kept"
        except OSError as error:
            said = type(error).__name__.encode()
        reply(m, {"stdout": b64(said), "stderr": "", "exit_code": 0})
    """
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    capabilities = {"write_plugin_data": True}
    root = write_ainb_plugin(tmp_path, "keeper", body, namespaces=["k"], capabilities=capabilities)

    async def kept(grants: list[str]) -> str:
        async with Host.load(root, grants=grants) as host:
            return (await host.run_cli("k", [])).stdout.decode()

    async def main() -> None:
        assert await kept(["other"]) == "FileNotFoundError"
        assert await kept(["write_plugin_data"]) == "kept"
        folder = tmp_path / "ada" / ".agents-in-a-box" / "plugins" / "keeper"
        assert ((folder / "kept").read_text(), folder.stat().st_mode & 0o777) == ("mine", 0o700)

    run(main)


LOOKS_AROUND = """
def tool(body, m):
    room = body["context"]["scratch_dir"]
    open(room + "/mine", "w").close()
    succeed(m, output({"has_scratch": sorted(os.listdir(os.path.dirname(os.path.dirname(room))))}))
"""


@pytest.mark.parametrize("confined", [True, False])
def test_an_instance_that_serves_one_org_sees_no_scratch_folder_of_another(
    run: Run, tmp_path: Path, confined: bool
) -> None:
    exports = [export(permissions={"filesystem": "scratch"}, execution_class="worker")]
    root = write_vai_plugin(tmp_path, LOOKS_AROUND, exports)

    async def main(host: Host) -> None:
        for org in ("one", "two"):
            seen = await host.invoke("t", {}, org_id=org)
        has_scratch = seen.value_or_raise()["structured_output"]["has_scratch"]
        assert len(has_scratch) == (1 if confined else 2)

    with_host(run, (host_of if confined else raw_host_of)(root), main)


# What a start needs.


@needs_root
def test_folders_are_made_for_the_plugins_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_own_folder(folder, 2_000_000_001)
    facts = folder.stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (2_000_000_001, 2_000_000_001, 0o700)
    assert folder.parent.stat().st_uid == os.geteuid()
    change_owner(folder, 2_000_000_002)
    assert folder.stat().st_uid == 2_000_000_001  # somebody's already
    make_own_folder(tmp_path / "c", None)
    assert (tmp_path / "c").stat().st_uid == os.geteuid()


def test_a_link_is_never_given_away(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"):
        make_own_folder(tmp_path / "link", 2_000_000_001)
    assert (tmp_path / "real").stat().st_uid == os.geteuid()


ENVIRON = {"HOME": "/home/ada", "TMPDIR": "/var/tmp/x", "PATH": "/usr/bin"}


@pytest.mark.parametrize(
    ("policy", "home", "tmp"),
    [
        (Policy(Path("/p")), "/tmp", "/tmp"),
        (Policy(Path("/p"), state=Path("/s")), "/s", "/tmp"),
        (Policy(Path("/p"), read=(Path("/home/ada/notes"),)), "/home/ada", "/tmp"),
        (Policy(Path("/p"), read=(Path("/home/bob/notes"),)), "/tmp", "/tmp"),
    ],
)
def test_inherited_variables_point_to_visible_paths(policy: Policy, home: str, tmp: str) -> None:
    assert sandbox_environ(policy, ENVIRON, Path("/home/ada")) == {"HOME": home, "TMPDIR": tmp, "PATH": "/usr/bin"}
    assert "TMPDIR" not in sandbox_environ(policy, {"HOME": "/home/ada"}, Path("/home/ada"))


@pytest.mark.parametrize(
    ("network", "there"),
    [
        (Network(), False),
        (Network(Reach.LISTED, (Endpoint("a.example"),)), True),
        (Network(Reach.ANY), True),
        (Network(Reach.HOST), False),
    ],
)
def test_proxy_variables_are_set_for_plugins_with_a_proxy(network: Network, there: bool) -> None:
    variables = dict(proxy_variables(Policy(Path("/p"), network=network)))
    assert ("HTTPS_PROXY" in variables) is there
    assert proxy_variables(None) == ()


def test_how_it_is_shown() -> None:
    assert Confinement(reason="ours").to_json() == {
        "confined": "unconfined: ours",
        "policy": None,
        "scratch": False,
        "notes": [],
    }
    policy = Policy(Path("/p"))
    shown = {"confined": "confined", "policy": policy.to_json(), "scratch": True, "notes": []}
    assert Confinement(policy, has_scratch=True).to_json() == shown


@pytest.mark.parametrize("kinds", [(), ("scratch",), ("network", "scratch")])
def test_only_plugins_with_a_scratch_grant_get_scratch_folders(kinds: tuple[str, ...]) -> None:
    assert confine(spec(), map(Access, kinds), operator(), Places()).has_scratch is ("scratch" in kinds)


# What a plugin may have put into its own folders, and what belongs to the host.


@needs_root
def test_no_link_in_a_plugins_own_folder_makes_the_host_give_something_away(tmp_path: Path) -> None:
    victim, own = tmp_path / "victim", tmp_path / "own"
    (victim / "inner").mkdir(parents=True)
    make_own_folder(own, 2_000_000_001)
    (own / "way").symlink_to(victim)
    for name in ("inner", "new"):
        with pytest.raises(OSError, match="way"):
            make_own_folder(own, 2_000_000_001, ("way", name))
    assert (os.stat(victim / "inner").st_uid, os.listdir(victim)) == (os.geteuid(), ["inner"])
    # What a path would have led to.
    (own / "way" / "new").mkdir()
    assert sorted(os.listdir(victim)) == ["inner", "new"]


@needs_root
def test_folders_within_a_plugins_own_are_its_users_on_the_whole_way(tmp_path: Path) -> None:
    for _ in range(2):
        make_own_folder(tmp_path / "own", 2_000_000_001, ("a", "b"))
    for name in ("own", "own/a", "own/a/b"):
        facts = os.stat(tmp_path / name)
        assert (facts.st_uid, facts.st_mode & 0o777) == (2_000_000_001, 0o700)


@pytest.mark.parametrize("kind", ["read_path", "write_path"])
def test_nothing_that_the_host_keeps_is_granted_and_around_it_it_is_hidden(kind: str, tmp_path: Path) -> None:
    (tmp_path / "state" / "secrets").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path / "state")
    kept = Places(protected=Protected((Entry(str(tmp_path / "state"), "the host's state folder"),)))
    for name in ("state", "state/secrets", "way/secrets"):
        refused = confine(spec(), [Access(kind, str(tmp_path / name))], operator(), kept)
        assert refused.refusal is not None and refused.refusal.detail["rule"] == "ResolvedPathHitsDenylist"
        assert (
            "the host's state folder" in refused.refusal.message and "no grant allows" in refused.refusal.detail["hint"]
        )
        assert confine(spec(), [Access(kind, str(tmp_path / name))], operator(), Places()).refusal is None
    around = policy_of(spec(), (Access(kind, str(tmp_path)),), places=kept)
    assert around.hidden == (str(tmp_path / "state"),)


def test_a_protected_folder_that_is_not_there_yet_is_made_where_it_would_be_seen(tmp_path: Path) -> None:
    """A missing path cannot be covered, and would be visible as soon as it is created."""
    (tmp_path / "project").mkdir()
    missing = [tmp_path / "project" / "a" / "data", tmp_path / "elsewhere" / "data"]
    kept = Places(protected=Protected(tuple(Entry(str(path), "data") for path in missing)))
    found = confine(spec(), [Access("read_path", str(tmp_path / "project"))], operator(), kept)
    assert [entry.path for entry in found.covered] == [str(missing[0])]
    for entry in found.covered:
        make_cover_target(entry)
    assert [path.is_dir() for path in missing] == [True, False]
    assert missing[0].stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("kind", "made"), [("write_path", True), ("read_path", False)])
def test_missing_settings_are_made_where_a_plugin_could_write_its_own(kind: str, made: bool, tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    kept = Places(protected=Protected((Entry(str(file), "plugbay.toml", SETTINGS),)))
    found = confine(spec(), [Access(kind, str(tmp_path))], operator(), kept)
    for entry in found.covered:
        make_cover_target(entry)
        make_cover_target(entry)  # a second plugin may need it too
    assert file.exists() is made
    assert not made or (file.read_bytes(), file.stat().st_mode & 0o777) == (b"", 0o600)


def test_no_link_that_a_plugin_left_has_a_protected_folder_made_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        make_cover_target(Entry(str(tmp_path / "way" / "data"), "data"))
    assert list((tmp_path / "target").iterdir()) == []


def test_a_plugin_does_not_write_its_own_program(tmp_path: Path) -> None:
    package = tmp_path / ".agents" / "p"
    package.mkdir(parents=True)
    plugin = replace(spec(), root=package)
    told = confine(plugin, [Access("own_path", "~/.agents/p")], operator(), Places(home=tmp_path))
    assert told.policy is not None and (told.policy.write, told.own) == ((), ())
    assert "because its program is there" in told.notes[0]
    assert confine(plugin, [Access("write_path", str(package))], operator(), Places()).refusal is not None
    assert policy_of(spec(), (Access("write_path", str(package)),)).write == (package,)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ada"
    (folder / "notes").mkdir(parents=True)
    (folder / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def land(tmp_path: Path) -> Path:
    """A folder without a home in it."""
    folder = tmp_path / "land"
    folder.mkdir()
    return folder


def test_an_existing_path_is_readable_by_its_granted_name(home: Path, tmp_path: Path) -> None:
    paths = Paths(home)
    paths.add_read(["~/notes", str(tmp_path / "." / "ada" / "notes"), "/usr/share"])
    assert (list(paths.read), paths.notes) == ([home / "notes", Path("/usr/share")], [])


def test_a_missing_path_is_left_out_with_a_note(home: Path) -> None:
    paths = Paths(home)
    paths.add_read(["~/gone", "~/notes"])
    assert list(paths.read) == [home / "notes"]
    assert paths.notes == [f"it may read {home}/gone, but that path does not exist"]


@needs_root
@pytest.mark.parametrize(
    ("mode", "owner", "is_shown"),
    [
        (0o755, 0, True),
        (0o700, 0, False),
        (0o754, 0, False),
        (0o700, 2_000_000_007, True),
        (0o077, 2_000_000_007, False),
    ],
)
def test_a_path_that_the_plugins_own_user_cannot_read_is_left_out_with_a_note(
    home: Path, mode: int, owner: int, is_shown: bool
) -> None:
    folder = home / "notes"
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    paths = Paths(home, user=2_000_000_007)
    paths.add_read(["~/notes"])
    assert list(paths.read) == ([folder] if is_shown else [])
    said = f"it may read {folder}, but its user 2000000007 cannot: use chmod o+rX, or setfacl"
    assert paths.notes == ([] if is_shown else [said])
    plain = Paths(home)
    plain.add_read(["~/notes"])
    assert (list(plain.read), plain.notes) == ([folder], [])


@pytest.mark.parametrize(
    "named",
    [
        "~",
        "~/.ssh",
        "~/.ssh/id_rsa",
        "/",
        "/etc",
        "/etc/shadow",
        "/etc/",
        "/proc/1",
        "/home/bob/.aws",
        "/home",
        "/dev/sda",
    ],
)
def test_nothing_that_gives_the_machine_or_its_user_away_may_be_written(home: Path, named: str) -> None:
    with pytest.raises(PathRefused, match="must not be visible to a plugin") as caught:
        Paths(home).add_write([named])
    assert caught.value.rule == HITS_DENYLIST


@pytest.mark.parametrize("named", ["~", "~/.ssh", "/", "/etc", "/proc", "/sys/kernel"])
def test_nor_read(home: Path, named: str) -> None:
    with pytest.raises(PathRefused, match="must not be visible to a plugin"):
        Paths(home).add_read([named])


def test_a_link_does_not_make_it_another_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to(home / ".ssh")
    (tmp_path / "harmless").symlink_to(home / "notes")
    (home / ".ssh" / "keys").mkdir()
    for named in ("innocent", "innocent/keys"):
        with pytest.raises(PathRefused, match=f"{named}, which is {home}/.ssh") as caught:
            Paths(home).add_read([str(tmp_path / named)])
        assert caught.value.rule == HITS_DENYLIST
    control = Paths(home)
    control.add_read([str(tmp_path / "harmless")])
    assert list(control.read) == [tmp_path / "harmless"]


def test_a_contract_may_extend_the_deny_list(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "bank" / "vault"
    (secret / "a").mkdir(parents=True)
    (tmp_path / "way").symlink_to(secret / "a")
    Paths(home).add_read([str(secret / "a")])
    for named in (secret, secret / "a", tmp_path / "way", tmp_path / "bank"):
        with pytest.raises(PathRefused, match=f"is inside {secret}"):
            Paths(home, (str(secret),)).add_read([str(named)])


def test_nothing_protected_is_shown_or_written_but_for_the_plugins_own(home: Path, land: Path) -> None:
    data = land / "data"
    (data / "packages" / "mine").mkdir(parents=True)
    (data / "key").touch()
    (land / "link").symlink_to(data / "key")
    entry = Entry(str(data), "the server's data folder")
    known = Protected((entry,), own=(str(data / "packages" / "mine"),))
    for named in (data, data / "key", land / "link", data / "packages"):
        for asks in (Paths.add_read, Paths.add_write):
            with pytest.raises(PathRefused, match="the server's data folder"):
                asks(Paths(home, protected=known), [str(named)])
        Paths(home).add_read([str(named)])
    paths = Paths(home, protected=known)
    paths.add_read([str(data / "packages" / "mine"), str(land)])
    assert list(paths.read) == [data / "packages" / "mine", land]


def test_a_folder_of_plugins_is_read_and_never_written(home: Path, land: Path) -> None:
    plugins_folder = land / "plugins"
    (plugins_folder / "notes").mkdir(parents=True)
    paths = Paths(home, protected=Protected(plugin_folders=(str(plugins_folder),)))
    paths.add_read([str(plugins_folder)])
    for named in (plugins_folder, plugins_folder / "notes"):
        with pytest.raises(PathRefused, match="the host looks for plugins in"):
            paths.add_write([str(named)])
    around = Paths(home, protected=Protected(plugin_folders=(str(plugins_folder),)))
    around.add_write([str(land)])
    assert (list(around.write), list(around.read)) == ([land], [plugins_folder])


def test_a_folder_with_a_database_in_it_is_read_and_not_written(home: Path, land: Path) -> None:
    (land / "a").mkdir()
    memory = Entry(str(land / "a" / "memory.db"), "the memory of all agents", DATABASE)
    paths = Paths(home, protected=Protected((memory,)))
    paths.add_read([str(land)])
    with pytest.raises(PathRefused, match="a writer beside a database can change it"):
        paths.add_write([str(land)])
    covered = Paths(home, protected=Protected((memory, Entry(str(land / "a"), "data"))))
    covered.add_write([str(land)])
    assert list(covered.write) == [land]


def test_where_there_is_nothing_nothing_can_be_written(home: Path) -> None:
    with pytest.raises(PathRefused, match=r"may write .*/gone, but that path does not exist") as caught:
        Paths(home).add_write(["~/notes", "~/gone"])
    assert (caught.value.rule, "create it" in caught.value.hint) == (RESOLUTION_FAILED, True)
    control = Paths(home)
    control.add_write(["~/notes"])
    assert list(control.write) == [home / "notes"]


def test_programs_are_shown_unless_every_sandbox_has_them(home: Path, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    paths = Paths(home)
    paths.add_run(["tool", "/usr/bin/env", "", "no-such-tool", "/opt/no/such"], f"{tool.parent}:/usr/bin")
    assert list(paths.run) == [tool]
    assert paths.notes == [
        "it may run no-such-tool, but there is no such program",
        "it may run /opt/no/such, but that path does not exist",
    ]


def test_an_optional_path_that_must_not_be_shown_is_left_out(home: Path) -> None:
    paths = Paths(home)
    paths.add_optional_read(home)
    paths.add_optional_read(home / "notes")
    assert list(paths.read) == [home / "notes"]
    assert "must not be visible to a plugin" in paths.notes[0]


def test_a_folder_of_its_own_is_written_and_made(home: Path) -> None:
    paths = Paths(home)
    paths.add_own(home / "new")
    assert (list(paths.write), list(paths.own)) == ([home / "new"], [home / "new"])
    assert not (home / "new").exists()


@requirement("host:sandbox-downloads")
@pytest.mark.parametrize(
    ("words", "runner"),
    [
        (("npx", "-y", "@acme/server@1.2"), "npx"),
        (("npx", "server"), "npx"),
        (("/usr/bin/env", "A=1", "npx", "server"), "npx"),
        (("uvx", "server"), "uvx"),
        (("bunx", "server"), "bunx"),
        (("pnpm", "dlx", "server"), "pnpm"),
        (("pipx", "run", "server"), "pipx"),
        (("pnpm", "start"), ""),
        (("npx", "installed"), ""),
        (("npx", "-y", "@acme/installed@2"), ""),
        (("npx", "tool"), ""),
        (("npx", "installed@latest"), "npx"),
        (("node", "server.js"), ""),
    ],
)
def test_a_confined_command_that_downloads_its_program_is_refused_at_once(
    tmp_path: Path, words: tuple[str, ...], runner: str
) -> None:
    for installed in ("installed", "@acme/installed", ".bin/tool"):
        (tmp_path / "node_modules" / installed).mkdir(parents=True)
    asked = replace(spec(), root=tmp_path, command=words)
    refusal = confine(asked, (), operator(), Places(tmp_path / "home", tmp_path / "state")).refusal
    assert (refusal is not None) == bool(runner)
    if refusal is not None:
        assert refusal.message.startswith(f"{runner} downloads ") and refusal.message.endswith("has no network")
        assert "declare the installed program" in refusal.detail["hint"]


@requirement("host:sandbox-downloads")
def test_a_runner_of_an_installed_package_is_refused_where_no_shell_is_shown(tmp_path: Path) -> None:
    tool = tmp_path / "node_modules" / ".bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    places = Places(tmp_path / "home", tmp_path / "state")
    for request, refused in ((SandboxRequest(fenced=True), True), (SandboxRequest(), False)):
        refusal = confine(
            replace(spec(request), root=tmp_path, command=("npx", "tool")), (), operator(), places
        ).refusal
        assert (refusal is not None) == refused
        if refusal is not None:
            assert "shows no shell" in refusal.message and str(tool) in refusal.detail["hint"]
