"""Operating systems and processors, by the names Go has for them.

Owns the names, and the words for a package that was built for other machines than this one. Such a package is no broken
one: it may be kept and looked at, and must not be started. Values only: which machine this is comes in as two names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugbay.contracts.validation import suggestion

if TYPE_CHECKING:
    from plugbay.contracts.vai.sections import Part

Platform = tuple[str, str]
"""(operating system, processor)."""

SYSTEMS = tuple(
    "aix android darwin dragonfly freebsd illumos ios js linux netbsd openbsd plan9 solaris wasip1 windows".split()
)
PROCESSORS = tuple("386 amd64 arm arm64 loong64 mips mips64 mips64le mipsle ppc64 ppc64le riscv64 s390x wasm".split())

_PROCESSORS = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i386": "386",
    "i486": "386",
    "i586": "386",
    "i686": "386",
    "armv6l": "arm",
    "armv7l": "arm",
    "armv8l": "arm",
    "loongarch64": "loong64",
}
_SYSTEMS = {"win": "windows", "cygwin": "windows", "macos": "darwin", "sunos": "solaris"}


def named(system: str, processor: str) -> Platform:
    """Go's names for what Python calls `sys.platform` and `platform.machine()`."""
    system, processor = system.lower().rstrip("0123456789"), processor.lower()
    return _SYSTEMS.get(system, system), _PROCESSORS.get(processor, processor)


def mismatch(systems: list[str], processors: list[str], here: Platform) -> str:
    """Why nothing of the package can run here; empty when it can."""
    if here[0] in systems and here[1] in processors:
        return ""
    return f"it is for {'/'.join(systems)} on {'/'.join(processors)}, and this machine is {here[0]} on {here[1]}"


def check(runtime: Part, here: Platform) -> None:
    """Both lists of `[runtime]`."""
    _names(runtime, "os", SYSTEMS, here[0])
    _names(runtime, "arch", PROCESSORS, here[1])


def _names(runtime: Part, key: str, known: tuple[str, ...], here: str) -> None:
    if runtime.value(key) == []:
        runtime.error("invalid_value", "must list the platforms of the package", key)
        return
    named = runtime.texts(key)
    for at, name in named:
        if name not in known:
            meant = (_SYSTEMS | _PROCESSORS).get(name)
            hint = f"; did you mean {meant!r}?" if meant else suggestion(name, known)
            runtime.warn("unknown_platform", f"{name!r:.60} is not a platform name of Go{hint}", key, at)
    if named and here not in [name for _, name in named]:
        names = ", ".join(name for _, name in named)
        runtime.warn("unsupported_platform", f"cannot be started here: this machine is {here}, not {names:.200}", key)
