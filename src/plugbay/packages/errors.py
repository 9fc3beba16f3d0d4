"""`PackageRefused`, and the closed set of machine-readable reasons.

Imports little: the CLI needs it for exit codes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from plugbay.model.errors import PlugbayError


class Reason(StrEnum):
    """All reasons, in the order of the checks."""

    # Contents of the archive.
    BAD_ARCHIVE = "bad_archive"
    """Not a gzipped tar, truncated, or with trailing data."""
    UNSAFE_NAME = "unsafe_name"
    """Absolute, with `..`, too long or too deep, or ambiguous on some file system."""
    DUPLICATE_NAME = "duplicate_name"
    """Two names that are the same on some file system."""
    LINK = "link"
    SPECIAL_FILE = "special_file"
    """A device, pipe, socket or sparse file."""
    TOO_MANY_FILES = "too_many_files"
    TOO_LARGE = "too_large"
    BOMB = "bomb"
    """Inflates to far more than a normal archive of its size."""

    # Publisher and signature.
    UNSIGNED = "unsigned"
    BAD_SIGNATURE_FILE = "bad_signature_file"
    SIGNATURE_INVALID = "signature_invalid"
    KEY_UNKNOWN = "key_unknown"
    KEY_OF_OTHER_PUBLISHER = "key_of_other_publisher"
    KEY_EXPIRED = "key_expired"
    KEY_REVOKED = "key_revoked"
    KEY_CONFLICT = "key_conflict"
    """The publisher has another trusted key, or the key is trusted for another publisher."""
    KEY_UNUSABLE = "key_unusable"
    """A key file that is not an Ed25519 key, or that others can read."""
    IDENTITY_MISMATCH = "identity_mismatch"
    """Manifest and signature name different plugins or versions."""
    TAMPERED = "tampered"
    EXTRA_FILE = "extra_file"
    MISSING_FILE = "missing_file"
    DIGEST_MISMATCH = "digest_mismatch"
    """The bytes do not have the requested digest."""

    # Decisions of the operator.
    DOWNGRADE = "downgrade"
    REPLAYED = "replayed"
    """Older than a version that was installed before, though not older than the current one."""
    VERSION_CONFLICT = "version_conflict"
    """A known version with different contents."""
    PINNED = "pinned"
    CONSENT_NEEDED = "consent_needed"
    ALREADY_INSTALLED = "already_installed"
    CHANGED_MEANWHILE = "changed_meanwhile"
    INSECURE_TRANSPORT = "insecure_transport"

    # Invalid files.
    INVALID_MANIFEST = "invalid_manifest"
    """The manifest is invalid; `problems` lists why."""
    INVALID_CONFIG = "invalid_config"
    """The trust store or the installation state is invalid; `problems` lists why."""

    # Missing things.
    NOT_FOUND = "not_found"
    NOT_INSTALLED = "not_installed"
    NO_EARLIER_RELEASE = "no_earlier_release"

    # Registry and environment.
    REGISTRY_FAILED = "registry_failed"
    UNAUTHORIZED = "unauthorized"
    MISSING_EXTRA = "missing_extra"
    """An optional dependency is not installed."""


class PackageRefused(PlugbayError):
    """A package, or a change of a store, was refused; nothing was changed. `detail` is JSON-ready."""

    def __init__(self, reason: Reason, message: str, *, hint: str = "", **detail: Any) -> None:
        self.reason = reason
        self.message = message
        self.hint = hint
        self.detail = detail
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)

    def to_json(self) -> dict[str, Any]:
        """The JSON under `refused` in the output of package commands with `--json`."""
        return {"reason": str(self.reason), "message": self.message, "hint": self.hint, **self.detail}
