"""The failures of a start: their exceptions, and explanations why a command did not start or did not stay.

The explanations are pure: they read the disk through the parameter `look`, whose real implementation is `facts`. Every
function returns a message, which names the file, and a hint, which may be empty.
"""

from __future__ import annotations

import errno
import itertools
import os
import platform
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from plugbay.model.errors import Code, PlugbayError
from plugbay.model.text import error_excerpt
from plugbay.process.status import ExitStatus, signal_name


class LaunchFailed(PlugbayError):
    """A process could not be started; nothing of it is left. `detail` is JSON-ready."""

    code: str = Code.LAUNCH_FAILED

    def __init__(self, message: str, hint: str = "", detail: Mapping[str, Any] | None = None) -> None:
        self.message = message
        self.hint = hint
        self.detail: dict[str, Any] = dict(detail or {})
        super().__init__(message)


class SandboxUnavailable(LaunchFailed):
    """A process must be confined and cannot be; it was not started, or is dead before its program ran."""

    code = Code.SANDBOX_UNAVAILABLE


HEAD_BYTES = 4096
"""Enough for a `#!` line (the kernel reads 256 bytes) and, in most programs, the path of the loader."""


class Kind(StrEnum):
    MISSING = "missing"
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Facts:
    """The file or folder at one path."""

    kind: Kind
    executable: bool = False
    head: bytes = b""
    target: str = ""
    """The missing path that a link leads to."""


Look = Callable[[str], Facts]
Words = tuple[str, str]


def facts(path: str, *, with_head: bool = True) -> Facts:
    """Look at a path. Never raises: an invisible path is missing, an unreadable file has an empty head.

    Each start looks, and only the explanation of a failure needs the head.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return Facts(Kind.MISSING, target=os.path.realpath(path) if os.path.islink(path) else "")
    if stat.S_ISDIR(mode):
        return Facts(Kind.DIRECTORY)
    if not stat.S_ISREG(mode):
        return Facts(Kind.OTHER)
    return Facts(Kind.FILE, os.access(path, os.X_OK), _head(path) if with_head else b"")


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


# The command did not start.


def launch_failure(
    argv: Sequence[str], cwd: str | os.PathLike[str], error: OSError, look: Look = facts, machine: str = ""
) -> Words:
    """Why starting `argv` in `cwd` failed with this error of the operating system."""
    if error.errno in SHORTAGES:
        return SHORTAGES[error.errno]
    place = look(os.fspath(cwd))
    if place.kind is not Kind.DIRECTORY:
        what = "does not exist" if place.kind is Kind.MISSING else "is not a directory"
        return f"the working directory {cwd} {what}", "correct the working directory, or create it"
    program = argv[0]
    seen = look(program)
    words = unusable(program, seen) or _wrong_interpreter(program, seen, look)
    if words is None and error.errno in {errno.ENOENT, errno.ENOEXEC}:
        words = _wrong_format(program, seen, machine or platform.machine())
    return words or _refused(program, error)


def unusable(path: str, seen: Facts) -> Words | None:
    """Why this path can never be a program; None when it may be one."""
    if seen.target:
        return f"{path} is a link to {seen.target}, which does not exist", "install the target of the link"
    if seen.kind is Kind.MISSING:
        return f"{path} does not exist", "check the command: a path in it is relative to the plugin's folder"
    if seen.kind is Kind.DIRECTORY:
        return f"{path} is a directory, not a program", "use the program file in it"
    if seen.kind is Kind.OTHER:
        return f"{path} is not a regular file", "use a program or a script"
    if not seen.executable:
        return f"{path} is not executable", f"run: chmod +x {path}"
    return None


def not_found(name: str, search_path: str, beside: bool) -> Words:
    """A bare name that is in no directory of the search path. `beside`: the plugin has such a file."""
    message = f"there is no program {name} in PATH ({search_path or 'which is empty'})"
    if beside:
        return message, f"to run the file with this name in the plugin's folder, write ./{name}"
    return message, f"install {name}, or write the command as a path"


SHORTAGES: dict[int | None, Words] = {
    errno.EMFILE: (
        "the host has too many open files to start another process",
        "raise the limit of open files (ulimit -n); each running plugin needs four",
    ),
    errno.ENFILE: ("the machine has too many open files to start another process", "raise fs.file-max"),
    errno.EAGAIN: (
        "the machine or the user has too many processes to start another one",
        "stop some, or raise the limit of processes (ulimit -u, pids.max)",
    ),
    errno.ENOMEM: (
        "the machine has too little free memory to start another process",
        "stop some processes, or add memory",
    ),
    errno.E2BIG: ("the arguments and the environment together are too long", "pass the data through a file"),
}
"""Errors that say nothing about the program: something ran out, and it may start at another moment."""


def error_name(error: OSError) -> str:
    """`EMFILE` for 24; the number where it has no name."""
    return errno.errorcode.get(error.errno or 0, str(error.errno))


FIRST_LINE = 256
"""Bytes of a script that the kernel looks at; of a longer line it takes no more."""


def shebang(head: bytes) -> tuple[str, str] | None:
    """Interpreter and argument of a `#!` line, read as the kernel does: a carriage return is part of it."""
    if not head.startswith(b"#!"):
        return None
    seen = head[:FIRST_LINE] if b"\n" in head[:FIRST_LINE] else head[: FIRST_LINE - 1]
    line = seen.split(b"\n", 1)[0][2:].strip(b" \t").decode("utf-8", "backslashreplace")
    interpreter = line.replace("\t", " ").partition(" ")[0]
    return interpreter, line[len(interpreter) :].strip(" \t")


def _wrong_interpreter(program: str, seen: Facts, look: Look) -> Words | None:
    named = shebang(seen.head)
    if named is None:
        return None
    interpreter = named[0]
    if not interpreter:
        return f"{program} has no interpreter after #!", "write for example #!/usr/bin/env python3"
    if interpreter.endswith("\r"):
        return (
            f"{program} has Windows line ends, so its interpreter is {interpreter[:-1]}\\r",
            f"run: sed -i 's/\\r$//' {program}",
        )
    words = unusable(interpreter, look(interpreter))
    if words is None:
        return None
    return (
        f"{program} needs the interpreter {interpreter}: {words[0]}",
        f"install it, or correct the first line of {program}",
    )


_FORMATS = (
    (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xfe\xed\xfa\xcf", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or a Java class"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
)

_ELF_MACHINES = {
    3: "i686",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
"""e_machine of the ELF header, in the words of `uname -m`."""

_SAME_MACHINE = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "i386": "i686",
    "armv7l": "arm",
    "armv6l": "arm",
    "ppc64le": "ppc64",
}

_LOADER = re.compile(rb"/[\w./+-]*ld[\w.+-]*\.so[\w.+-]*")


def _wrong_format(program: str, seen: Facts, machine: str) -> Words | None:
    head = seen.head
    if head.startswith(b"\x7fELF"):
        return _wrong_elf(program, head, machine)
    if head.startswith(b"#!"):
        return None
    for magic, what in _FORMATS:
        if head.startswith(magic):
            return f"{program} is {what}; this machine cannot run it", "get the version for Linux"
    if not head:
        return f"{program} is empty, or cannot be read", "check that it was copied completely"
    if head.startswith(b"\xef\xbb\xbf#!"):
        return f"{program} has a byte order mark before its #!", "save it as UTF-8 without a byte order mark"
    return (
        f"{program} is neither a program for this machine nor a script with a #! line",
        "write the interpreter into its first line, for example #!/usr/bin/env python3",
    )


def _wrong_elf(program: str, head: bytes, machine: str) -> Words | None:
    number = int.from_bytes(head[18:20], "big" if head[5:6] == b"\x02" else "little")
    built_for = _ELF_MACHINES.get(number, f"machine type {number}")
    here = _SAME_MACHINE.get(machine.lower(), machine.lower())
    if built_for != here:
        return (
            f"{program} is built for {built_for}, this machine is {machine}",
            f"get the version for {machine}",
        )
    loader = _LOADER.search(head)
    if loader is None:
        return None
    path = loader.group().decode()
    return (
        f"{program} needs the loader {path}, which is missing, or the file is damaged",
        "it was built for another Linux (musl or glibc): get the version for this one",
    )


def _refused(program: str, error: OSError) -> Words:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return (
            f"running {program} is not permitted",
            "the file system may be mounted noexec, or this user may have no access to a directory above it",
        )
    if error.errno == errno.ETXTBSY:
        return f"{program} is still open for writing", "wait until it is written, then try again"
    return f"{program} cannot be started: {error.strerror or error}", ""


# The command started and did not stay.

_SIGNALS: dict[str, str] = {
    "SIGKILL": "if no user killed it, the kernel may have: look for 'Out of memory' in the kernel log",
    "SIGSEGV": "it crashed inside native code; a native extension may not fit its interpreter",
    "SIGBUS": "it crashed inside native code, or a file it had mapped was shortened",
    "SIGABRT": "it aborted; the last lines of its stderr should have the reason",
    "SIGILL": "it was built for a newer processor than this one",
    "SIGSYS": "it made a system call that its sandbox forbids",
    "SIGXCPU": "it used up its limit of CPU time",
    "SIGXFSZ": "it tried to write a file larger than its limit",
    "SIGPIPE": "it wrote to a pipe that is no longer read",
    "SIGTERM": "another process asked it to stop",
}

_Q = "['\"`\u2018\u2019]"
"""Any quotation mark that a program puts around a name, in any locale."""

_RULES: tuple[tuple[int | None, str, str, str], ...] = (
    (
        127,
        r"env: Q?([^'\"]+?)(?:\\r|\\x0d)Q?: No such file",
        "its first line ends in a Windows line end, so {0} is not found",
        "run: sed -i 's/\\r$//' {program}",
    ),
    (
        127,
        r"env: (?:can't execute )?Q?([^'\"\u2018\u2019:]+)Q?: No such file",
        "{0} is not installed, or not in the plugin's PATH",
        "install {0}, or correct the first line of {program}",
    ),
    (
        None,
        r"^ModuleNotFoundError: No module named Qplugbay(?:\.sdk)?Q",
        "the SDK of plugbay is not installed for {python}",
        "run: {python} -m pip install plugbay-sdk",
    ),
    (
        None,
        r"^ModuleNotFoundError: No module named Q([\w.]+)Q",
        "the Python module {0} is not installed for {python}",
        "run: {python} -m pip install {0}",
    ),
    (
        None,
        r"^(\S*python\S*): No module named (\S+)$",
        "the Python module {1} is not installed for {0}",
        "run: {0} -m pip install {1}",
    ),
    (
        None,
        r"can't open file Q(.+?)Q: \[Errno 2\]",
        "the script {0} does not exist",
        "check the arguments of the command",
    ),
    (
        None,
        r"^Error(?: \[ERR_MODULE_NOT_FOUND\])?: Cannot find (?:module|package) Q(.+?)Q",
        "node cannot find the module {0}",
        "run npm install in the plugin's folder, or check the path",
    ),
    (
        None,
        r"error while loading shared libraries: ([^:]+):",
        "the shared library {0} is missing",
        "install the package that contains {0}",
    ),
    (
        None,
        r"version Q(\w+_[\d.]+)Q not found",
        "it needs {0}, which is newer than this machine's",
        "get a version built for an older system",
    ),
    (
        None,
        r"^Can't locate (\S+)\.pm in @INC",
        "the Perl module {0} is not installed",
        "install it with cpan, or with the system's packages",
    ),
    (
        127,
        r"(?:^|: )(?:exec: )?([^\s:]+): (?:command )?not found$",
        "{0} is not installed, or not in the plugin's PATH",
        "install {0}, or write it as a path",
    ),
    (126, r"(?:^|: )([^\s:]+): Permission denied$", "{0} may not be run", "run: chmod +x {0}"),
)
"""Exit code that the rule is for, pattern of a line of stderr with Q for a quotation mark, cause, hint. Groups of the
pattern are {0}, {1}. Compiled for the first plugin that ends early: that takes 5 ms."""

_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*)?$")
_PYTHON_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)')


def early_exit(
    argv: Sequence[str],
    status: ExitStatus,
    stderr_tail: Sequence[str],
    look: Look = facts,
    known: Words | None = None,
) -> Words:
    """Why a started command ended before it was ready. `known`: the reason, if the caller knows it."""
    cause, hint = known or _cause(argv, status, stderr_tail, look)
    message = f"the plugin ended early ({status.describe()})"
    return (f"{message}: {cause}" if cause else message), hint


def _cause(argv: Sequence[str], status: ExitStatus, tail: Sequence[str], look: Look) -> Words:
    if status.signal is not None:
        return "", _SIGNALS.get(signal_name(status.signal), "")
    if status.clean:
        return (
            "",
            "a plugin must run until its stdin is closed; check that its source calls plugin.run(), or has a loop",
        )
    known = _known(argv, status, tail, look) or _traceback(tail)
    if known is not None:
        return known
    if status.code == 127:
        return "a command in it was not found", "run it by hand to see which"
    if status.code == 126:
        return "a command in it may not be run", "check the execute permission of the programs that it runs"
    named = error_excerpt([line for line in tail if line.strip()], 1)
    return (named[0].strip(), "") if named else ("", "it wrote nothing to stderr; run it by hand to see more")


def _known(argv: Sequence[str], status: ExitStatus, tail: Sequence[str], look: Look) -> Words | None:
    rules = [
        (re.compile(pattern.replace("Q", _Q)), cause, hint)
        for code, pattern, cause, hint in _RULES
        if code in (None, status.code)
    ]
    names = {"program": argv[0], "python": _python(argv, look)}
    for line, (pattern, cause, hint) in itertools.product(reversed(tail), rules):
        found = pattern.search(line)
        if found is not None:
            return cause.format(*found.groups(), **names), hint.format(*found.groups(), **names)
    return None


def _traceback(tail: Sequence[str]) -> Words | None:
    """The last line of a Python traceback, and where it happened."""
    places = [index for index, line in enumerate(tail) if _PYTHON_PLACE.match(line)]
    if not places:
        return None
    error = next((line for line in tail[places[-1] + 1 :] if _PYTHON_ERROR.match(line)), None)
    place = _PYTHON_PLACE.match(tail[places[-1]])
    if error is None or place is None:
        return None
    return error, f"see {place[1]}, line {place[2]}"


def _python(argv: Sequence[str], look: Look) -> str:
    """The interpreter that ran, as one would type it."""
    if os.path.basename(argv[0]).startswith("python"):
        return argv[0]
    interpreter, argument = shebang(look(argv[0]).head) or ("", "")
    if os.path.basename(interpreter) == "env" and argument:
        interpreter = argument.split()[-1]
    return interpreter if "python" in os.path.basename(interpreter) else "python3"
