"""The two hellos: what each end says about itself, and what the other makes of it.

A plugin must be exactly the package that is installed: another id or version is a sign of tampering, so nothing is ever
asked of it. Refuses to know frames and states.
"""

from __future__ import annotations

from plugbay.contracts.vai.errors import IDENTITY_MISMATCH, INVALID_FRAME
from plugbay.model.errors import Code, Failure, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def judge(plugin: Any, package_id: str, version: str) -> dict[str, Any] | Failure:
    """HOST: the plugin as `Ready` carries it, or why it must go."""
    if not isinstance(plugin, dict):
        return _unwelcome(INVALID_FRAME, "its hello does not say who it is")
    expected = {"package_id": package_id, "version": version}
    got = {name: plugin.get(name) for name in expected}
    if got != expected:
        said = {name: f"{value:.200}" if isinstance(value, str) else None for name, value in got.items()}
        what = f"it says it is {said['package_id']} {said['version']}, but {package_id} {version} is installed"
        return _unwelcome(IDENTITY_MISMATCH, what, expected=expected, got=said)
    return {**expected, "warnings": []}


def _unwelcome(code: str, why: str, **more: Any) -> Failure:
    what = f"the plugin was not accepted: {why}"
    return Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail={"plugin_code": code, **more})


def heard(host: Any) -> dict[str, str]:
    """PLUGIN: what the host said about itself; what is missing reads as nothing."""
    said = host if isinstance(host, dict) else {}
    return {f"host_{name}": said[name] if isinstance(said.get(name), str) else "" for name in ("name", "version")}
