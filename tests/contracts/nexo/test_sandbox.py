"""The sandbox section: nothing that gives the machine away can be asked for, however it is spelled."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.nexo.manifest import parse
from plugbay.contracts.nexo.sandbox import DENIED, DENIED_AT_HOME, HOST_NET_ALLOW, REQUIRE, denied, normalised
from plugbay.model.spec import SandboxRequest
from plugbay.model.users import NOBODY
from tests.contracts.nexo.manifests import ROOT, good, manifest, problems
from tests.support.requirements import requirement

TOUCHES = "sandbox_allowlist_touches_denylist"
TOKEN = "sandbox_invalid_state_dir_interpolation"
TRUTHY = ["1", "true", "TRUE", "yes", "YES"]
FALSY = ["", "0", "false", "True", "on", " 1"]


def sandboxed(*lines: str) -> str:
    return manifest("\n".join(["[plugin.sandbox]", "enabled = true", *lines]))


def error_of(key: str, path: str, environ: dict[str, str] | None = None) -> str | None:
    """The code of the only problem that a single path leads to."""
    found = problems(sandboxed(f"{key} = ['{path}']"), environ)
    assert [problem[2] for problem in found] == [f"plugin.sandbox.{key}[0]"] * len(found)
    assert len(found) <= 1
    return found[0][1] if found else None


@requirement("nexo:manifest-sandbox-off")
def test_no_section_and_a_section_that_is_off_ask_for_nothing() -> None:
    assert good(manifest()).sandbox is None
    assert good(manifest("[plugin.sandbox]")).sandbox is None
    off = 'enabled = false\nnetwork = "host"\nfs_read_paths = ["/etc", "x", "${state_dir}"]'
    assert good(manifest(f"[plugin.sandbox]\n{off}")).sandbox is None


def test_a_section_that_is_off_still_has_its_types() -> None:
    assert problems(manifest('[plugin.sandbox]\nenabled = false\nnetwork = "allowlist"\nfs_read_paths = "/x"')) == [
        ("error", "invalid_value", "plugin.sandbox.network"),
        ("error", "invalid_type", "plugin.sandbox.fs_read_paths"),
    ]


@requirement("nexo:manifest-sandbox-defaults")
def test_an_enabled_sandbox_denies_the_network_and_drops_the_user() -> None:
    assert good(sandboxed()).sandbox == SandboxRequest(read=(), write=(), host_network=False, never=DENIED, user=NOBODY)


@requirement("nexo:manifest-sandbox-paths")
def test_paths_are_handed_on_normalised_and_once() -> None:
    spec = good(
        sandboxed(
            'fs_read_paths = ["/etc/ssl/certs", "//etc/ssl/./certs/", "/opt/a/../b"]',
            'fs_write_paths = ["${state_dir}", "${state_dir}/", "${state_dir}//cache/.", "/srv/x"]',
        )
    )
    assert spec.sandbox == SandboxRequest(
        read=("/etc/ssl/certs", "/opt/b"),
        write=("${state_dir}", "${state_dir}/cache", "/srv/x"),
        never=DENIED,
        user=NOBODY,
    )


@requirement("nexo:manifest-sandbox-defaults")
def test_a_plugin_that_keeps_its_user_number_is_told_that_the_rights_are_dropped() -> None:
    text = sandboxed("drop_user = false")
    assert problems(text) == [("warning", "sandbox_user_dropped", "plugin.sandbox.drop_user")]
    spec, _ = parse(text, ROOT, {})
    assert spec is not None and spec.sandbox == SandboxRequest(never=DENIED, user=None)
    assert good(sandboxed("drop_user = true")).sandbox == good(sandboxed()).sandbox
    assert good(sandboxed()).sandbox == SandboxRequest(never=DENIED, user=65534)


@requirement("nexo:manifest-sandbox-require")
@pytest.mark.parametrize(("value", "insists"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_whether_anybody_may_be_let_off_is_the_environments_word(value: str, insists: bool) -> None:
    assert good(sandboxed(), {REQUIRE: value}).sandbox == SandboxRequest(never=DENIED, insists=insists, user=NOBODY)


@requirement("nexo:manifest-sandbox-network")
@pytest.mark.parametrize("value", TRUTHY)
def test_the_hosts_network_is_given_where_the_operator_allows_it(value: str) -> None:
    assert good(sandboxed('network = "host"'), {HOST_NET_ALLOW: value}).sandbox == SandboxRequest(
        host_network=True, never=DENIED, user=NOBODY
    )


@requirement("nexo:manifest-sandbox-network")
@pytest.mark.parametrize("environ", [{}, *({HOST_NET_ALLOW: value} for value in FALSY)])
def test_the_hosts_network_is_refused_otherwise(environ: dict[str, str]) -> None:
    assert problems(sandboxed('network = "host"'), environ) == [
        ("error", "sandbox_host_network_without_capability", "plugin.sandbox.network")
    ]


@requirement("nexo:manifest-sandbox-require")
@pytest.mark.parametrize("value", TRUTHY)
def test_an_operator_can_insist_on_a_sandbox(value: str) -> None:
    refused = [("error", "sandbox_required_but_disabled", "plugin.sandbox.enabled")]
    assert problems(manifest(), {REQUIRE: value}) == refused
    assert problems(manifest("[plugin.sandbox]\nenabled = false"), {REQUIRE: value}) == refused
    assert problems(sandboxed(), {REQUIRE: value}) == []


@pytest.mark.parametrize("value", FALSY)
def test_an_operator_who_says_no_does_not_insist(value: str) -> None:
    assert problems(manifest(), {REQUIRE: value}) == []


@requirement("nexo:manifest-sandbox-denylist")
@pytest.mark.parametrize("key", ["fs_read_paths", "fs_write_paths"])
@pytest.mark.parametrize("entry", DENIED)
def test_a_denied_path_is_refused_with_all_it_holds_and_all_that_holds_it(key: str, entry: str) -> None:
    assert error_of(key, entry) == TOUCHES
    assert error_of(key, f"{entry}/deeper") == TOUCHES
    assert error_of(key, posixpath.dirname(entry)) == TOUCHES
    assert error_of(key, f"{entry}_backup") is None


@requirement("nexo:manifest-sandbox-denylist")
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "/.",
        "/..",
        "/etc/",
        "/var/",
        "/run/",
        "//etc/shadow",
        "/etc//shadow",
        "/etc/./shadow",
        "///root",
        "/etc/../etc/shadow",
        "/opt/../etc",
        "/etc/ssl/..",
        "/usr/../../boot/grub",
        "/private/var",
        "/dev",
        "/proc",
        "/sys",
    ],
)
def test_a_spelling_is_no_way_around_the_list(path: str) -> None:
    assert error_of("fs_read_paths", path) == TOUCHES


@requirement("nexo:manifest-sandbox-denylist")
@pytest.mark.parametrize(
    "path", ["/etc/ssl/certs", "/etc/shadow_backup", "/usr/share", "/opt", "/srv/data", "/rooted", "/var/lib/x", "/tmp"]
)
def test_a_path_beside_the_list_is_given(path: str) -> None:
    assert error_of("fs_read_paths", path) is None
    assert error_of("fs_write_paths", path) is None


@requirement("nexo:manifest-sandbox-denylist-home")
@pytest.mark.parametrize("name", DENIED_AT_HOME)
def test_credentials_at_home_are_denied_in_any_home(name: str) -> None:
    assert error_of("fs_read_paths", f"/home/ana/{name}") == TOUCHES
    assert error_of("fs_read_paths", f"/home/ana/{name}/deeper") == TOUCHES
    assert error_of("fs_read_paths", f"/opt/ana/{name}", {"HOME": "/opt/ana"}) == TOUCHES
    assert error_of("fs_read_paths", f"/opt/ana/{name}", {"HOME": "//opt/./ana/"}) == TOUCHES
    assert error_of("fs_read_paths", f"/{name}", {"HOME": "/"}) == TOUCHES
    assert error_of("fs_read_paths", f"/opt/ana/{name}") is None


@requirement("nexo:manifest-sandbox-denylist-home")
@pytest.mark.parametrize("path", ["/home", "/home/", "/home/ana", "/home/ana/.config", "/home/ana/.cargo"])
def test_a_folder_that_holds_credentials_is_denied(path: str) -> None:
    assert error_of("fs_read_paths", path) == TOUCHES


@pytest.mark.parametrize("home", ["", "relative", "${state_dir}"])
def test_a_home_that_is_no_absolute_path_is_nobodys_home(home: str) -> None:
    assert error_of("fs_read_paths", "/opt/x", {"HOME": home}) is None
    assert error_of("fs_read_paths", "/home/ana/project", {"HOME": home}) is None


@requirement("nexo:manifest-sandbox-paths")
@pytest.mark.parametrize("path", ["", "x", "./x", "../x", "~/x", "$HOME/x", "${HOME}/x", " /x", "C:/x"])
def test_a_path_that_is_not_absolute_is_refused(path: str) -> None:
    assert error_of("fs_read_paths", path) == "sandbox_relative_path"
    assert error_of("fs_write_paths", path) == "sandbox_relative_path"


@requirement("nexo:manifest-sandbox-state-dir")
@pytest.mark.parametrize("path", ["${state_dir}", "${state_dir}/x", "/x/${state_dir}", "${state_dir}${state_dir}"])
def test_the_state_dir_is_not_for_reading(path: str) -> None:
    assert error_of("fs_read_paths", path) == TOKEN


@requirement("nexo:manifest-sandbox-state-dir")
@pytest.mark.parametrize("path", ["${state_dir}", "${state_dir}/", "${state_dir}/a/b", "${state_dir}/..a"])
def test_the_state_dir_can_be_written_as_a_whole_or_in_part(path: str) -> None:
    assert error_of("fs_write_paths", path) is None


@requirement("nexo:manifest-sandbox-state-dir")
@pytest.mark.parametrize(
    "path",
    [
        "/x/${state_dir}",
        "x${state_dir}",
        "${state_dir}x",
        "${state_dir}${state_dir}",
        "${state_dir}/${state_dir}",
        "${state_dir}/..",
        "${state_dir}/a/../../b",
        "${state_dir}..",
    ],
)
def test_the_state_dir_stands_once_in_front_and_is_not_left(path: str) -> None:
    assert error_of("fs_write_paths", path) == TOKEN


def test_a_nul_is_refused() -> None:
    text = 'fs_read_paths = ["/x\\u0000"]\nfs_write_paths = ["${state_dir}/\\u0000"]'
    assert [code for _, code, _ in problems(sandboxed(text))] == ["invalid_value", "invalid_value"]


@requirement("nexo:manifest-sandbox-command")
@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("/root/bin/slack", True),
        ("/etc/slack", True),
        ("/slack", True),
        ("/home/ana/slack", True),
        ("/usr//../boot/slack", True),
        ("/usr/local/bin/slack", False),
        ("/home/ana/bin/slack", False),
        ("./bin/slack", False),
        ("slack", False),
    ],
)
def test_the_folder_of_the_command_is_an_allowlist_too(command: str, refused: bool) -> None:
    text = manifest("[plugin.sandbox]\nenabled = true", entrypoint=f'command = "{command}"')
    assert problems(text) == ([("error", TOUCHES, "plugin.entrypoint.command")] if refused else [])
    assert problems(manifest(entrypoint=f'command = "{command}"')) == []


parts = st.lists(st.sampled_from(["etc", "shadow", "root", "opt", "ssl", "..", ".", "", "home", ".ssh"]), max_size=7)


@given(parts)
def test_normalising_says_the_same_twice_and_never_climbs_above_the_root(names: list[str]) -> None:
    path = normalised("/" + "/".join(names))
    assert normalised(path) == path
    assert path.startswith("/") and not path.startswith("//")
    assert not {"..", "."} & set(path.split("/"))


@given(parts)
def test_a_path_is_denied_exactly_when_it_overlaps_an_entry(names: list[str]) -> None:
    path = normalised("/" + "/".join(names))
    mine = path.strip("/").split("/") if path != "/" else []
    theirs = [entry.strip("/").split("/") for entry in (*DENIED, *(f"/home/*/{name}" for name in DENIED_AT_HOME))]

    def overlaps(entry: list[str]) -> bool:
        return all(one == other or other == "*" for one, other in zip(mine, entry, strict=False))

    assert (denied(path, {}) is not None) == any(map(overlaps, theirs))
