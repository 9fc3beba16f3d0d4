"""The arguments of bubblewrap: what is always there, in which order, and that no text becomes an option."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.process.diagnose import LaunchFailed, SandboxUnavailable
from plugbay.process.sandbox.bwrap import INSTALL, NAMESPACES, Bind, Plan, arguments, explain_setup_failure

PLAN = Plan(uid=1000, seccomp=11, status=12, block=13, cwd="/plugin", tmp=4096)
ARITY = {
    **dict.fromkeys("--uid --gid --hostname --size --tmpfs --proc --dev --remount-ro --chdir --perms".split(), 1),
    **dict.fromkeys("--seccomp --json-status-fd --block-fd".split(), 1),
    **dict.fromkeys("--setenv --symlink --file --bind --ro-bind --bind-fd --ro-bind-fd".split(), 2),
    **dict.fromkeys(
        "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --unshare-net".split(), 0
    ),
    **dict.fromkeys("--disable-userns --assert-userns-disabled --die-with-parent --new-session --clearenv".split(), 0),
}
"""How many words bubblewrap takes after each option."""


def read(data: bytes) -> list[tuple[str, ...]]:
    """The options with their values, read as bubblewrap reads them."""
    *words, end = data.decode("utf-8", "surrogateescape").split("\0")
    assert end == ""
    found = []
    while words:
        count = ARITY[words[0]] + 1
        found.append(tuple(words[:count]))
        words = words[count:]
    return found


def names(plan: Plan) -> list[str]:
    return [option[0] for option in read(arguments(plan))]


def test_an_empty_plan_has_every_fence() -> None:
    options = read(arguments(PLAN))
    fences = (
        "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --unshare-net --disable-userns "
        "--assert-userns-disabled --die-with-parent --new-session --clearenv"
    ).split()
    assert set(fences) <= {option[0] for option in options}
    assert ("--uid", "1000") in options
    assert ("--seccomp", "11") in options
    assert ("--remount-ro", "/") in options
    assert ("--ro-bind", "/proc/sys", "/proc/sys") in options


def test_only_a_plugin_with_the_machines_network_keeps_it() -> None:
    assert "--unshare-net" in names(PLAN)
    assert "--unshare-net" not in names(replace(PLAN, own_network=False))


def test_each_tmpfs_has_a_size() -> None:
    options = read(arguments(PLAN))
    tmpfs = [index for index, option in enumerate(options) if option[0] == "--tmpfs"]
    assert len(tmpfs) == 3
    assert all(options[index - 1] == ("--size", "4096") for index in tmpfs)
    assert options[tmpfs[-1] + 1] == ("--remount-ro", "/dev")


def test_what_lies_deeper_is_mounted_later_and_the_writable_last() -> None:
    binds = (Bind(1, "/a/b/c"), Bind(2, "/a", True), Bind(3, "/a/b", True), Bind(4, "/a/b"))
    mounts = [option for option in read(arguments(replace(PLAN, binds=binds))) if option[0].endswith("-fd")]
    assert mounts[:4] == [
        ("--bind-fd", "2", "/a"),
        ("--ro-bind-fd", "4", "/a/b"),
        ("--bind-fd", "3", "/a/b"),
        ("--ro-bind-fd", "1", "/a/b/c"),
    ]


def test_a_cover_lies_over_the_mount_around_it_and_under_mounts_within_it() -> None:
    binds = (Bind(1, "/a/b/c", True), Bind(2, "/a"), Bind(3, "/a/b", True))
    options = read(arguments(replace(PLAN, binds=binds, hidden=("/a/b",))))
    steps = [("--ro-bind-fd", "2", "/a"), ("--bind-fd", "3", "/a/b"), ("--tmpfs", "/a/b"), ("--bind-fd", "1", "/a/b/c")]
    at = options.index(steps[0])
    assert options[at : at + 5] == [*steps, ("--remount-ro", "/a/b")]
    assert ("--tmpfs", "/a/b") not in read(arguments(replace(PLAN, binds=binds)))


def test_proc_and_dev_cover_whatever_a_policy_puts_there() -> None:
    options = read(arguments(replace(PLAN, binds=(Bind("/tmp/0", "/proc"), Bind("/tmp/1", "/dev/x/y")))))
    last = max(index for index, option in enumerate(options) if option[1:2] in {("/tmp/0",), ("/tmp/1",)})
    assert last < options.index(("--proc", "/proc")) < options.index(("--dev", "/dev"))


def test_process_1_and_files_about_the_machine_are_covered_after_proc_is_mounted() -> None:
    options = read(arguments(replace(PLAN, masked=("/proc/keys",))))
    there = options.index(("--proc", "/proc"))
    assert there < options.index(("--tmpfs", "/proc/1")) < options.index(("--remount-ro", "/proc/1"))
    assert there < options.index(("--ro-bind", "/dev/null", "/proc/keys"))


def test_made_files_are_read_only_and_so_are_their_folders() -> None:
    options = read(arguments(replace(PLAN, files=((7, "/etc/passwd"), (8, "/etc/group")))))
    made = [index for index, option in enumerate(options) if option[0] == "--file"]
    assert [options[index] for index in made] == [("--file", "7", "/etc/passwd"), ("--file", "8", "/etc/group")]
    assert all(options[index - 1] == ("--perms", "0444") for index in made)
    assert max(made) < options.index(("--remount-ro", "/"))


def test_tmp_is_mounted_before_sources_below_it() -> None:
    options = read(arguments(replace(PLAN, binds=(Bind("/tmp/0", "/tmp/x"),))))
    assert options.index(("--tmpfs", "/tmp")) < options.index(("--ro-bind", "/tmp/0", "/tmp/x"))


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, env={"A": "b\0--bind"}),
        replace(PLAN, cwd="/a\0b"),
        replace(PLAN, binds=(Bind("/a", "/b\0--cap-add\0ALL"),)),
    ],
)
def test_a_nul_that_would_end_a_word_early_is_refused(plan: Plan) -> None:
    with pytest.raises(ValueError, match="NUL"):
        arguments(plan)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(sorted(ARITY))


@given(cwd=texts, env=st.dictionaries(texts, texts, max_size=4), paths=st.lists(texts, max_size=4), link=texts)
def test_no_text_ever_becomes_an_option(cwd: str, env: dict[str, str], paths: list[str], link: str) -> None:
    def plan(cwd: str, env: dict[str, str], paths: list[str], link: str) -> Plan:
        binds = tuple(Bind(path, path, bool(index % 2)) for index, path in enumerate(paths))
        files = tuple((7, path) for path in paths)
        return replace(PLAN, cwd=cwd, env=env, binds=binds, files=files, links=((link, link),))

    harmless = plan("/", {str(number): "x" for number in range(len(env))}, ["/x"] * len(paths), "x")
    hostile = plan(cwd, env, paths, link)
    assert sorted(names(hostile)) == sorted(names(harmless))
    said = read(arguments(hostile))
    assert {option[1:] for option in said if option[0] == "--setenv"} == set(env.items())
    assert ("--chdir", cwd) in said


ARGV = ("/plugin/run", "--now")


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ("bwrap: Unknown option --ro-bind-fd", "does not know --ro-bind-fd", INSTALL),
        ("bwrap: No permissions to create new namespace, likely because …", "user namespaces", NAMESPACES),
        ("bwrap: setting up uid map: Permission denied", "user namespaces", NAMESPACES),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces", NAMESPACES),
        ("bwrap: Can't chdir to /x y: No such file or directory", "/x y is not visible inside (No such", ""),
        ("bwrap: seccomp: Invalid data, must be multiple of 8", "filter cannot be loaded", ""),
        ("bwrap: Race condition binding dirfd", "replaced during the start", ""),
        ("bwrap: Can't mkdir /x: Read-only file system", "Can't mkdir /x: Read-only", "run plugbay doctor"),
        ("", "without a message", "run plugbay doctor"),
    ],
)
def test_a_setup_that_failed_is_the_sandboxs_failure(said: str, message: str, hint: str) -> None:
    error = explain_setup_failure(ARGV, f"noise\n{said}\n\n" if said else "")
    assert isinstance(error, SandboxUnavailable)
    assert message in error.message
    assert error.hint.startswith(hint)
    assert error.hint
    assert error.detail["command"] == list(ARGV)


def test_a_program_that_cannot_be_run_is_the_plugins_failure() -> None:
    error = explain_setup_failure(ARGV, "bwrap: execvp /plugin/run: Permission denied\n")
    assert type(error) is LaunchFailed
    assert error.message == "/plugin/run cannot be run inside its sandbox: Permission denied"
    assert "chmod" in error.hint


def test_a_folder_with_a_telling_name_is_not_taken_for_the_cause() -> None:
    error = explain_setup_failure(ARGV, "bwrap: execvp /seccomp/unshare: No such file or directory")
    assert "cannot be run inside" in error.message
