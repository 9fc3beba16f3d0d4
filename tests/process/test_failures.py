"""What a failed start tells."""

from __future__ import annotations

from plugbay.model.errors import Code
from plugbay.process import command
from plugbay.process.failures import LaunchFailed, SandboxUnavailable


def test_a_failed_start_has_words_a_hint_details_and_a_code() -> None:
    error = LaunchFailed("it broke", "mend it", {"command": ["x"]})
    assert (str(error), error.message, error.hint, error.detail) == (
        "it broke",
        "it broke",
        "mend it",
        {"command": ["x"]},
    )
    assert error.code == Code.LAUNCH_FAILED


def test_a_missing_sandbox_is_a_failed_start_with_a_code_of_its_own() -> None:
    error = SandboxUnavailable("no bwrap")
    assert isinstance(error, LaunchFailed)
    assert (error.code, error.hint, error.detail) == (Code.SANDBOX_UNAVAILABLE, "", {})


def test_both_are_found_where_commands_are() -> None:
    assert (command.LaunchFailed, command.SandboxUnavailable) == (LaunchFailed, SandboxUnavailable)
