"""What bubblewrap says, in words that help."""

from __future__ import annotations

import pytest

from plugbay.process.failures import LaunchFailed, SandboxUnavailable
from plugbay.process.sandbox.words import INSTALL, NAMESPACES, setup_failure

ARGV = ("/plugin/run", "--now")


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ("bwrap: Unknown option --ro-bind-fd", "does not know --ro-bind-fd", INSTALL),
        ("bwrap: No permissions to create new namespace, likely because …", "user namespaces", NAMESPACES),
        ("bwrap: setting up uid map: Permission denied", "user namespaces", NAMESPACES),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces", NAMESPACES),
        ("bwrap: Can't chdir to /x y: No such file or directory", "/x y is not to be seen inside (No such", ""),
        ("bwrap: seccomp: Invalid data, must be multiple of 8", "filter cannot be loaded", ""),
        ("bwrap: Race condition binding dirfd", "exchanged at that moment", ""),
        ("bwrap: Can't mkdir /x: Read-only file system", "Can't mkdir /x: Read-only", "run plugbay doctor"),
        ("", "said nothing", "run plugbay doctor"),
    ],
)
def test_a_setup_that_failed_is_the_sandboxs_failure(said: str, message: str, hint: str) -> None:
    error = setup_failure(ARGV, f"noise\n{said}\n\n" if said else "")
    assert isinstance(error, SandboxUnavailable)
    assert message in error.message
    assert error.hint.startswith(hint)
    assert error.hint
    assert error.detail["command"] == list(ARGV)


def test_a_program_that_cannot_be_run_is_the_plugins_failure() -> None:
    error = setup_failure(ARGV, "bwrap: execvp /plugin/run: Permission denied\n")
    assert type(error) is LaunchFailed
    assert error.message == "/plugin/run cannot be run inside its sandbox: Permission denied"
    assert "chmod" in error.hint


def test_a_folder_with_a_telling_name_is_not_taken_for_the_cause() -> None:
    error = setup_failure(ARGV, "bwrap: execvp /seccomp/unshare: No such file or directory")
    assert "cannot be run inside" in error.message
