"""The rules of `vai-plugin.toml` that its shape cannot say, but for permissions and what depends on the kind.

Owns the sense of the package, of `[runtime]`, and of what all exports have. Each rule reads what is there on its own,
so one mistake never hides another.
"""

from __future__ import annotations

import re

from plugbay.contracts.vai import kinds, permissions, platforms
from plugbay.contracts.vai.files import Schemas, Site, path_problem
from plugbay.contracts.vai.messages import PROTOCOL
from plugbay.contracts.vai.parts import Part

API_VERSION = "vai.plugin.v1"
TRANSPORT = "stdio"

LONGEST_MS = 3_600_000
"""An hour: nothing may ask for more time, and who does gets this much."""

INTERPRETERS = ("python3", "python", "node", "deno", "bun", "ruby", "java")
"""Programs of the host that may start a package; any other program has to be in it."""

_PART = r"[a-z0-9][a-z0-9._-]{0,63}"
_PACKAGE_ID = re.compile(rf"{_PART}/{_PART}")
_EXPORT_ID = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_TAG = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{2}}(?:-{_TAG}(?:\.{_TAG})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_SOURCE = re.compile(
    r"oci://[^/\s@]+/[a-z0-9._/-]+(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@sha256:[0-9a-f]{64})?"
)


def check(whole: Part, site: Site, schemas: Schemas) -> None:
    """Every rule, on whatever is there."""
    _package(whole)
    _source(whole)
    _runtime(whole.part("runtime"), site)
    _exports(whole, schemas)


def _package(whole: Part) -> None:
    api = whole.text("api_version")
    if api is not None and api != API_VERSION:
        whole.error("unsupported_api_version", f"must be {API_VERSION!r}, got {api!r:.60}", "api_version")
    id = whole.text("package_id")
    if id is not None and not _PACKAGE_ID.fullmatch(id):
        text = "must be a publisher, '/' and a name, each of at most 64 lower-case letters, digits, '.', '_' and '-'"
        whole.error("invalid_package_id", f"{text}, got {id!r:.60}", "package_id")
    elif id is not None and not all(id.split(".")):
        # The id is a part of bus topics, whose segments are between dots.
        whole.error("invalid_package_id", f"{id!r} must not have two dots in a row, nor end with one", "package_id")
    version = whole.text("version")
    if version is not None and not _SEMVER.fullmatch(version):
        whole.error("invalid_version", f"{version!r:.60} is no semantic version such as 1.2.3", "version")


def _source(whole: Part) -> None:
    """Where the package was published. A digest is what counts there, so nothing of it can be an error here."""
    source = whole.text("source")
    if source is None:
        return
    found = _SOURCE.fullmatch(source)
    if found is None:
        text = f"must be like oci://registry/name:1.2.3, got {source!r:.100}"
        whole.warn("invalid_source", text, "source")
        return
    version = whole.text("version")
    # A tag has no '+'.
    if version is not None and found["tag"] not in (None, version.replace("+", "_")):
        text = f"the tag is {found['tag']!r}, the version {version!r:.60}"
        whole.warn("source_mismatch", text, "source")


def _runtime(runtime: Part, site: Site) -> None:
    protocol, transport = runtime.text("protocol"), runtime.text("transport")
    if protocol is not None and protocol != PROTOCOL:
        runtime.error("unsupported_protocol", f"must be {PROTOCOL!r}, got {protocol!r:.60}", "protocol")
    if transport is not None and transport != TRANSPORT:
        runtime.error("unsupported_transport", f"must be {TRANSPORT!r}, got {transport!r:.60}", "transport")
    _entrypoint(runtime, site)
    platforms.check(runtime, site.platform)


def _entrypoint(runtime: Part, site: Site) -> None:
    words = runtime.texts("entrypoint")
    if runtime.value("entrypoint") == []:
        runtime.error("invalid_entrypoint", "names no program", "entrypoint")
    for at, word in words:
        problem = (
            "must not contain a NUL character" if "\0" in word else _program_problem(word, site) if at == 0 else None
        )
        if problem is not None:
            runtime.error("invalid_entrypoint", f"{word!r:.100} {problem}", "entrypoint", at)


def _program_problem(word: str, site: Site) -> str | None:
    if "/" in word:
        return path_problem(word) or site.program_problem(word)
    if word in INTERPRETERS:
        return None
    return f"is no program of the package, which would begin with './', and none of {', '.join(INTERPRETERS)}"


def _exports(whole: Part, schemas: Schemas) -> None:
    if whole.value("exports") == []:
        whole.error("no_exports", "a package has at least one export", "exports")
    seen: set[str] = set()
    for export in whole.parts("exports"):
        _id(export, seen)
        _limits(export)
        permissions.check(export)
        kinds.check(export)
        schemas.check(export, "config_schema")
        for key in ("input_schema", "output_schema"):
            schemas.check(export.part("tool"), key)


def _id(export: Part, seen: set[str]) -> None:
    id = export.text("id")
    if id is None:
        return
    if not _EXPORT_ID.fullmatch(id):
        text = "must be a lower-case letter followed by at most 63 lower-case letters, digits or '_'"
        export.error("invalid_export_id", f"{text}, got {id!r:.80}", "id")
    elif id in seen:
        export.error(
            "duplicate_export_id", f"{id!r} is the id of an earlier export; kinds do not tell them apart", "id"
        )
    seen.add(id)


def _limits(export: Part) -> None:
    export.one_of("execution_class", kinds.CLASSES)
    timeout, concurrency = export.value("default_timeout_ms"), export.value("max_concurrency")
    # `type`, because a boolean is an integer in Python.
    if timeout is not None and (type(timeout) is not int or timeout < 1):
        text = f"must be a whole number of milliseconds above 0, got {timeout!r:.60}"
        export.error("invalid_timeout", text, "default_timeout_ms")
    elif timeout is not None and timeout > LONGEST_MS:
        export.warn("timeout_clamped", f"nothing runs longer than {LONGEST_MS:,} ms", "default_timeout_ms")
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        export.error("invalid_concurrency", f"must be 1 or more, got {concurrency!r:.60}", "max_concurrency")
    if export.value("execution_class") == "inline" and export.part("permissions").value("network") == "egress":
        text = "inline is for reviewed code that asks for little; hosts may refuse it the network"
        export.warn("inline_egress", text, "execution_class")
