"""The greeting: what a host says in `plugin/init`, and what it makes of whoever answers.

Real plugins answer `{name, version}`, the contract asks for the manifest and the ABI version: either is taken, and only
another ABI is refused. A wrong name or version is worth a warning, since one program may be installed under several
names. Refuses to know frames and states.
"""

from __future__ import annotations

from plugbay.contracts.ainb import errors
from plugbay.contracts.ainb.messages import ABI_VERSION, HOST_KIND, granted_names
from plugbay.model.errors import Code, Failure, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.contracts.ainb.messages import Identity


def opening(
    manifest_path: str, granted: tuple[str, ...], config: dict[str, Any] | None, host_pid: int | None
) -> dict[str, Any]:
    """HOST: the parameters of `plugin/init`."""
    who = {} if host_pid is None else {"host": {"kind": HOST_KIND, "pid": host_pid}}
    return {
        "manifest_path": manifest_path,
        "granted_capabilities": granted_names(granted),
        "abi_version": ABI_VERSION,
        "config": config,
        **who,
    }


def judge(result: Any, name: str, version: str) -> dict[str, Any] | Failure:
    """HOST: what the plugin said about itself, as `Ready` carries it, or why it must go."""
    said = _said(result)
    abi = said.get("abi_version", ABI_VERSION)
    if type(abi) is not int or abi != ABI_VERSION:
        what = f"the plugin speaks ABI version {abi!r:.40}; this host speaks {ABI_VERSION}"
        detail = {"expected": ABI_VERSION, "got": abi if type(abi) is int else None}
        return Failure(Code.PROTOCOL_VERSION_MISMATCH, what, origin=Origin.PLUGIN, detail=detail)
    warnings = [
        *(["answered plugin/init without saying who it is"] if not said else ()),
        *_drift("is called", said.get("name"), name),
        *_drift("is version", said.get("version"), version),
    ]
    return {
        "name": _text(said.get("name")) or name,
        "version": _text(said.get("version")) or version,
        "abi_version": ABI_VERSION,
        "warnings": warnings,
    }


def _said(result: Any) -> dict[str, Any]:
    """What is said of the plugin, in whichever of the known places; the answer itself counts before its manifest."""
    answer = result if isinstance(result, dict) else {}
    manifest = answer.get("manifest")
    table = manifest if isinstance(manifest, dict) else {}
    plugin = table.get("plugin")
    places = (answer, plugin if isinstance(plugin, dict) else {}, table)
    keys = ("name", "version", "abi_version")
    found = {key: next((place[key] for place in places if place.get(key) is not None), None) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def _drift(what: str, said: Any, declared: str) -> list[str]:
    """A warning, when both sides say something and do not agree."""
    if said is None or not declared or said == declared:
        return []
    return [f"says it {what} {said!r:.100}; its manifest says {declared!r}"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def reply(identity: Identity) -> dict[str, Any]:
    """PLUGIN: the result of `plugin/init`, in both shapes at once."""
    return {
        "name": identity.name,
        "version": identity.version,
        "abi_version": ABI_VERSION,
        "manifest": identity.manifest,
    }


def heard(params: Any) -> dict[str, Any] | tuple[int, str]:
    """PLUGIN: what the host said in `plugin/init`, or the error it gets. What is missing reads as nothing."""
    if not isinstance(params, dict):
        return errors.INVALID_PARAMS, "params must be an object"
    abi = params.get("abi_version", ABI_VERSION)
    if type(abi) is not int or abi != ABI_VERSION:
        return errors.MANIFEST_VALIDATION, f"this plugin speaks ABI version {ABI_VERSION}, not {abi!r:.40}"
    granted = params.get("granted_capabilities")
    return {
        "granted": tuple(name for name in granted if isinstance(name, str)) if isinstance(granted, list) else (),
        "config": params.get("config"),
        "manifest_path": _text(params.get("manifest_path")),
    }
