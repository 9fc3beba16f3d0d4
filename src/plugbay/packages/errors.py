"""Why a package is not taken: one exception, and a closed set of reasons that nobody needs to read text for.

Pure, and quick to import: the command line wants it for its exit statuses.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from plugbay.model.errors import PlugbayError


class Reason(StrEnum):
    """Every reason, in the order of a package's way from its author into a store."""

    # What a package must not contain, or be.
    BAD_ARCHIVE = "bad_archive"
    """Not a gzipped tar, cut short, or followed by something else."""
    UNSAFE_NAME = "unsafe_name"
    """Absolute, with `..`, too long or too deep, or a name that some file system would take for another."""
    DUPLICATE_NAME = "duplicate_name"
    """Two names that one file system or another takes for the same."""
    LINK = "link"
    SPECIAL_FILE = "special_file"
    """A device, a pipe, a socket, a sparse file."""
    TOO_MANY_FILES = "too_many_files"
    TOO_LARGE = "too_large"
    BOMB = "bomb"
    """Inflates to far more than an honest archive of its size."""

    # Whose it is.
    UNSIGNED = "unsigned"
    BAD_SIGNATURE_FILE = "bad_signature_file"
    SIGNATURE_INVALID = "signature_invalid"
    KEY_UNKNOWN = "key_unknown"
    KEY_OF_OTHER_PUBLISHER = "key_of_other_publisher"
    KEY_EXPIRED = "key_expired"
    KEY_REVOKED = "key_revoked"
    KEY_UNUSABLE = "key_unusable"
    """A key file that is no Ed25519 key, or that others could read."""
    IDENTITY_MISMATCH = "identity_mismatch"
    """Manifest and signature name different plugins or versions."""
    TAMPERED = "tampered"
    EXTRA_FILE = "extra_file"
    MISSING_FILE = "missing_file"
    DIGEST_MISMATCH = "digest_mismatch"
    """The bytes are not those that were asked for."""

    # What the operator has decided, or has to.
    DOWNGRADE = "downgrade"
    REPLAYED = "replayed"
    """Older than what this store has had, though not than what it has now."""
    VERSION_CONFLICT = "version_conflict"
    """A version that is known with other contents."""
    PINNED = "pinned"
    CONSENT_NEEDED = "consent_needed"
    ALREADY_INSTALLED = "already_installed"
    CHANGED_MEANWHILE = "changed_meanwhile"
    INSECURE_TRANSPORT = "insecure_transport"

    # What cannot be read.
    INVALID_MANIFEST = "invalid_manifest"
    """No host would take the manifest; `problems` lists why."""
    INVALID_CONFIG = "invalid_config"
    """The trusted keys, or the state of a store; `problems` lists why."""

    # What is not there.
    NOT_FOUND = "not_found"
    NOT_INSTALLED = "not_installed"
    NO_EARLIER_RELEASE = "no_earlier_release"

    # What is nobody's fault here.
    REGISTRY_FAILED = "registry_failed"
    UNAUTHORIZED = "unauthorized"
    MISSING_EXTRA = "missing_extra"
    """A library that only packages need is not installed."""


class PackageRefused(PlugbayError):
    """A package, or a change to a store, that is refused; nothing was changed. `detail` is JSON-ready."""

    def __init__(self, reason: Reason, message: str, *, hint: str = "", **detail: Any) -> None:
        self.reason = reason
        self.message = message
        self.hint = hint
        self.detail = detail
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)

    def to_json(self) -> dict[str, Any]:
        """The public shape, as every package command has it under `refused` with `--json`."""
        return {"reason": str(self.reason), "message": self.message, "hint": self.hint, **self.detail}
