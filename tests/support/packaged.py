"""Packages for tests of the gateway: made from a folder, signed by a key that the gateway trusts, brought and bound.

publisher = Publisher(tmp_path / "data", tmp_path)
package = await publisher.bring(gateway, body="def tool(body, m): …", exports=[export("t")])
binding = await bind(gateway, package, "t")
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from plugbay.packages import keys, signature
from plugbay.packages.archive import Packed, pack
from plugbay.packages.trust import TrustedKey, TrustStore
from plugbay.server.domain.bindings import Draft
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.packages import TRUST_FILE
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.bindings import BindingRow
from plugbay.store.packages import PackageRow
from tests.support.vai import write_vai_plugin

SIGNED_AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def remove_release(folder: Path) -> None:
    """Remove the files of an installed package, whose folders are closed to writes."""
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o755)
    shutil.rmtree(folder)


class Publisher:
    """Somebody whose key a gateway trusts for packages of `acme`."""

    def __init__(self, data: Path, folder: Path, name: str = "acme") -> None:
        self.key = Ed25519PrivateKey.generate()
        self.key_id = keys.key_id(keys.public_of(self.key))
        self._folder = folder
        self._count = 0
        TrustStore(data / TRUST_FILE).add(TrustedKey(keys.public_of(self.key), name), "keep")

    def pack(self, body: str = "", exports: Sequence[dict[str, Any]] | None = None, **options: Any) -> Packed:
        """An archive of a package, as `write_vai_plugin` makes it."""
        self._count += 1
        place = self._folder / f"release-{self.key_id}-{self._count}"
        place.mkdir()
        return pack(write_vai_plugin(place, body, exports, **options), place)

    def sign(self, packed: Packed) -> bytes:
        """The signature of an archive."""
        return signature.sign(packed.package, self.key, SIGNED_AT).to_bytes()

    def header(self, packed: Packed) -> dict[str, str]:
        """The same as a header of an upload."""
        return {"x-vai-signature": base64.b64encode(self.sign(packed)).decode()}

    async def bring(
        self,
        gateway: Gateway,
        body: str = "",
        exports: Sequence[dict[str, Any]] | None = None,
        *,
        caller: Principal = OPERATOR,
        **options: Any,
    ) -> PackageRow:
        """A signed package that the gateway has."""
        packed = self.pack(body, exports, **options)
        row, _ = await gateway.packages.upload(caller, packed.path, self.sign(packed))
        return row


async def bind(gateway: Gateway, package: PackageRow, export: str = "t", **fields: Any) -> BindingRow:
    """An active binding of an export, for the project `proj_1` of `org_1` unless told otherwise."""
    scope = {"org_id": "org_1", "project_id": "proj_1"}
    draft = Draft(package.package_id, package.version, export, **{**scope, **fields})
    return await gateway.bindings.create(OPERATOR, draft)
