"""Installed plugins for templates: signers, releases, and a package before the consent with its differences. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from plugbay.host.authorization.explanations import explain
from plugbay.model.spec import PluginSpec
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import Difference, Look, asks
from plugbay.packages.releases import origin
from plugbay.packages.store import Installed, Release
from plugbay.packages.trust import TrustedKey
from plugbay.server.dashboard.tables import NextStep
from plugbay.server.dashboard.text import moment, size
from plugbay.server.dashboard.views.plugins import RISK_TONES
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, OFF, WARN, Badge

SHORT_DIGEST = len("sha256:") + 12
"""Characters of a digest on a button and in a table."""

NEW, GONE = "new", "gone"
"""Marks of a difference; no mark: as before."""

_ANOTHER_KEY = "Ask its publisher for a package that is signed with a trusted key."
_DAMAGED = "The signature does not match these files. Get package and signature again, or ask the publisher."

_ADVICE: Mapping[Reason, str] = {
    Reason.UNSIGNED: (
        "Its publisher signs it with plugbay sign. This server accepts unsigned packages only with "
        "plugbay serve --allow-unsigned."
    ),
    Reason.KEY_UNKNOWN: "If you got this key from the publisher by a trusted way, trust it, and return to this page.",
    Reason.KEY_OF_OTHER_PUBLISHER: (
        "A key signs for one publisher. If the publisher owns this plugin too, trust the key for it: plugbay publisher "
        "trust has --packages. Then return to this page."
    ),
    Reason.KEY_EXPIRED: _ANOTHER_KEY,
    Reason.KEY_REVOKED: _ANOTHER_KEY,
    Reason.DOWNGRADE: (
        "A rollback returns to an earlier installed release. plugbay upgrade FILE --allow-downgrade installs any "
        "older one."
    ),
    Reason.REPLAYED: (
        "A newer version was installed before; this one may have a known weakness. plugbay install FILE "
        "--allow-downgrade installs it anyway."
    ),
    Reason.VERSION_CONFLICT: "A version must not change. Ask its publisher for a new version.",
    Reason.PINNED: "Unpin it to allow other releases, and return to this page.",
}
"""Next steps after a refusal, for a reader in the browser."""

_PUBLISHERS = frozenset({Reason.KEY_UNKNOWN, Reason.KEY_OF_OTHER_PUBLISHER, Reason.KEY_EXPIRED, Reason.KEY_REVOKED})
_INSTALLED = frozenset({Reason.DOWNGRADE, Reason.PINNED})


def refusal_of(refused: PackageRefused, page: str) -> NextStep:
    """Why a package is not installed, and the next step; `page` is that of the installed plugin."""
    advice = _ADVICE.get(refused.reason, _DAMAGED)
    if refused.reason in _PUBLISHERS:
        return NextStep(refused.message, advice, label="Publishers", link="/publishers")
    if refused.reason in _INSTALLED:
        return NextStep(refused.message, advice, label="The installed plugin", link=page)
    return NextStep(refused.message, advice)


def signer_of(key_id: str | None, keys: Mapping[str, TrustedKey]) -> Badge:
    """The publisher who signed a release, as the trusted publishers of the server say now."""
    if key_id is None:
        return Badge("unsigned", WARN, "these files have no signature")
    key = keys.get(key_id)
    if key is None:
        return Badge("unknown", WARN, "verified on the command line, with a key that this server does not trust")
    if key.revoked:
        return Badge(key.publisher, BAD, "the key was revoked after the installation")
    return Badge(key.publisher, GOOD)


class ReleaseRow(msgspec.Struct, frozen=True):
    """One release of a plugin."""

    version: str
    digest: str
    source: str
    signer: Badge
    key_id: str
    at: float | None
    badge: Badge
    """Whether it is the current one, or one to go back to."""


def releases_of(installed: Installed, keys: Mapping[str, TrustedKey]) -> list[ReleaseRow]:
    """All releases of a plugin, the newest first."""
    rows = [
        _release_row(release, _position(at, installed.position), keys)
        for at, release in enumerate(installed.state.releases)
    ]
    return rows[::-1]


def _position(at: int, current: int) -> Badge:
    if at == current:
        return Badge("current", GOOD)
    if at == current - 1:
        return Badge("previous", CALM, "a rollback returns to it")
    return Badge("rolled back", OFF, "the next upgrade drops it") if at > current else Badge("kept", CALM)


def _release_row(release: Release, badge: Badge, keys: Mapping[str, TrustedKey]) -> ReleaseRow:
    return ReleaseRow(
        release.version,
        release.digest,
        release.source,
        signer_of(release.key_id, keys),
        release.key_id or "",
        moment(release.installed_at),
        badge,
    )


class Line(msgspec.Struct, frozen=True):
    """One permission or export, and how it differs from the installed release."""

    text: str
    mark: str = ""
    allows: str = ""
    """A capability in plain words."""
    risk: Badge | None = None


class LookView(msgspec.Struct, frozen=True):
    """A package before the consent."""

    id: str
    name: str
    description: str
    version: str
    contract: str
    digest: str
    size: str
    files: int
    source: str
    signer: Badge
    key_id: str
    signed_at: str
    asks: tuple[Line, ...]
    asks_for_grants: bool
    exports: tuple[Line, ...]
    before: str
    """The installed version; empty if there is none."""
    before_digest: str
    is_compared: bool
    """Whether the differences are known. False also if there is nothing to compare with."""
    unchanged: bool
    refused: NextStep | None
    label: str
    """Of the button that consents."""


def look_of(look: Look, source: str, page: str) -> LookView:
    """`page` is that of the installed plugin."""
    spec, before = look.spec, look.before
    exports = tuple(f"{export.kind} {export.name}" for export in spec.exports)
    changes = look.difference or Difference((), (), (), ())
    verb = "Install" if before is None else "Upgrade to"
    return LookView(
        spec.id,
        spec.name,
        spec.description,
        spec.version,
        spec.contract,
        look.digest,
        size(look.size),
        look.files,
        source,
        _signer_of_look(look),
        "" if look.verified is None else look.verified.key.key_id,
        "" if look.verified is None else look.verified.signature.signed_at,
        tuple(_explained(line, spec) for line in compare(asks(spec), changes.asked, changes.dropped)),
        bool(spec.capabilities),
        compare(exports, changes.added_exports, changes.removed_exports),
        "" if before is None else before.current.version,
        "" if before is None else before.current.digest,
        look.difference is not None,
        look.unchanged,
        None if look.refused is None else refusal_of(look.refused, page),
        f"{verb} {spec.version}, {short(look.digest)}",
    )


def _signer_of_look(look: Look) -> Badge:
    if look.verified is not None:
        return Badge(look.verified.key.publisher, GOOD)
    if look.refused is None or look.refused.reason is Reason.UNSIGNED:
        return Badge("unsigned", WARN)
    return Badge("refused", BAD)


def compare(now: tuple[str, ...], added: tuple[str, ...], removed: tuple[str, ...]) -> tuple[Line, ...]:
    """What is new first, then what stays, then what is gone."""
    return (
        *(Line(text, NEW) for text in added),
        *(Line(text) for text in now if text not in added),
        *(Line(text, GONE) for text in removed),
    )


def _explained(line: Line, spec: PluginSpec) -> Line:
    """A capability that the package asks for, with its meaning and risk; other lines as they are."""
    if line.mark == GONE or line.text not in spec.capabilities:
        return line
    known = explain(spec, line.text)
    return replace(line, allows=known.allows, risk=Badge(f"{known.risk} risk", RISK_TONES[known.risk], known.why))


def change_facts(changes: Difference | None) -> tuple[tuple[str, str], ...]:
    """The differences of two releases, for a confirmation."""
    if changes is None:
        return (("differences", "unknown: the files of a release cannot be read"),)
    found = (
        ("asks for more", changes.asked),
        ("no longer asks for", changes.dropped),
        ("also exports", changes.added_exports),
        ("no longer exports", changes.removed_exports),
    )
    listed = tuple((name, text) for name, texts in found for text in texts)
    return listed or (("differences", "none in permissions and exports"),)


def short(digest: str) -> str:
    """The first characters of a digest."""
    return f"{digest[:SHORT_DIGEST]}…"


def registry_of(installed: Installed) -> str:
    """The repository that the current release came from, to type a tag after it; empty for a file."""
    place = origin(installed.current.source)
    return "" if place is None else f"{place}:"
