"""Plain words for why a sandbox could not be set up, from what bubblewrap says on stderr.

Owns the sentences. Pure. What was said comes from a program of the machine and never from a plugin: nothing of a plugin
has run when this is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plugbay.process.failures import LaunchFailed, SandboxUnavailable

NAMESPACES = (
    "allow user namespaces: sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 on older "
    "Debian, an AppArmor profile for bwrap on Ubuntu (or kernel.apparmor_restrict_unprivileged_userns=0), "
    "and in a container a seccomp profile that lets unshare and mount through"
)

INSTALL = "install bubblewrap 0.8.0-2+deb12u1, 0.10 or newer (apt-get install bubblewrap)"

_RULES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), cause, hint)
    for pattern, cause, hint in (
        (r"(?i)unknown option (\S+)", "this bubblewrap does not know {0}", INSTALL),
        (
            r"Can't chdir to (.+): (.+)",
            "the working directory {0} is not to be seen inside ({1})",
            "start the plugin in its own folder, or show it that one",
        ),
        (r"Exceeded maximum number of arguments", "there are too many variables in its environment", "set fewer"),
        (
            r"(?i)(new namespace|uid map|gid map|unshare|user ?namespaces?|max_user_namespaces|userns)",
            "user namespaces cannot be used",
            NAMESPACES,
        ),
        (r"(?i)seccomp|system call filter", "the system call filter cannot be loaded", "install plugbay again"),
        (
            r"Race condition",
            "something that it is shown was exchanged at that moment",
            "try again; find out who renames its folders",
        ),
    )
)

_NOT_RUN = re.compile(r"^bwrap: execvp (.+): (.+)$")


def setup_failure(argv: Sequence[str], said: str) -> LaunchFailed:
    """The error for a start that ended before the program ran. A program that cannot be run is the plugin's failure."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    detail = {"command": list(argv), "said": lines[-5:]}
    for line in reversed(lines):
        refused = _NOT_RUN.match(line)
        if refused is not None:
            return LaunchFailed(
                f"{argv[0]} cannot be run inside its sandbox: {refused[2]}",
                "it, its interpreter or its libraries may lie where the plugin sees nothing, or its user may not "
                "read them: show them to it (read or run of its policy), chmod o+rx",
                detail,
            )
    for line in reversed(lines):
        for pattern, cause, hint in _RULES:
            found = pattern.search(line)
            if found is not None:
                return SandboxUnavailable(
                    f"the sandbox cannot be set up: {cause.format(*found.groups())}", hint, detail
                )
    last = lines[-1] if lines else "bubblewrap ended and said nothing"
    return SandboxUnavailable(f"the sandbox cannot be set up: {last}", "run plugbay doctor", detail)
