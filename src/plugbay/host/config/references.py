"""References in the command and the environment of a plugin, resolved at its start: settings, secrets, variables.

    env = { API_KEY = "secret://api_key", REGION = "${AWS_REGION:-eu}" }

A secret belongs to the plugin (`plugbay config secret`) and goes into the environment of its process, never into its
arguments. Only contracts in `REFERRING` have references.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from plugbay.contracts.registry import CONTRACTS
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from plugbay.process.command import LaunchFailed

REFERRING = frozenset(name for name, contract in CONTRACTS.items() if contract.has_references)
"""Contracts whose manifests may contain references."""

SECRET = "secret://"

_SCHEME = re.compile(r"(?:Basic|Bearer|Token) (?=secret://)")
"""The part of an Authorization header before the secret."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def secret_name(spec: PluginSpec, value: str) -> str | None:
    """The name of the secret that a value refers to, with or without the plugin's id; None if it is not a reference."""
    _, rest = _split_scheme(spec, value)
    return rest.removeprefix(SECRET).removeprefix(f"{spec.id}/") if rest.startswith(SECRET) else None


def _split_scheme(spec: PluginSpec, value: str) -> tuple[str, str]:
    """The scheme before the reference in a header of a server on the network, and the rest; other values have none."""
    found = _SCHEME.match(value) if spec.url else None
    return ("", value) if found is None else (found[0], value[found.end() :])


def declare_secrets(spec: PluginSpec) -> tuple[PluginSpec, list[Problem]]:
    """Add the secrets that the environment refers to to the settings of the spec; also returns invalid references."""
    if spec.contract not in REFERRING:
        return spec, []
    names = {variable: name for variable, value in spec.env if (name := secret_name(spec, value)) is not None}
    problems = [
        Problem("invalid_value", f"env.{variable}", f"{SECRET}{name} is not a secret of {spec.id}'s own")
        for variable, name in names.items()
        if not name or "/" in name
    ]
    problems += _misplaced_references(spec)
    if not names:
        return spec, problems
    known = spec.settings.secrets_schema or {"type": "object", "properties": {}, "required": []}
    fresh = {name: {"type": "string", "minLength": 1} for name in names.values() if name not in known["properties"]}
    schema = {
        **known,
        "properties": {**known["properties"], **fresh},
        "required": list(dict.fromkeys((*known.get("required", ()), *names.values()))),
        "additionalProperties": False,
    }
    return replace(spec, settings=replace(spec.settings, secrets_schema=schema)), problems


def _misplaced_references(spec: PluginSpec) -> list[Problem]:
    """References to secrets that are not resolved: the program would get the reference itself."""
    text = "a secret must be the whole value of a variable"
    inside = [f"env.{name}" for name, value in spec.env if SECRET in value and secret_name(spec, value) is None]
    places = [*(["command"] if any(SECRET in word for word in spec.command) else []), *inside]
    return [Problem("invalid_value", place, text) for place in places]


def resolve_references(
    spec: PluginSpec,
    config: Mapping[str, Any] | None,
    secrets: Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> PluginSpec:
    """The spec with all references resolved; raises `LaunchFailed` for a variable that is not set."""
    if spec.contract not in REFERRING:
        return spec
    from plugbay.contracts.mcp.bundle import fill, is_setting  # its models are for the contracts with references alone

    kept = secrets or {}
    filled = fill(spec, {**(config or {}), **kept})
    set_ = dict(filled.env)
    env = [
        # A setting is used literally, even if it looks like a reference.
        (name, set_[name] if is_setting(value) else _value(spec, name, value, kept, environ))
        for name, value in spec.env
        if name in set_
    ]
    return replace(filled, env=tuple(env))


def _value(spec: PluginSpec, name: str, value: str, secrets: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    wanted = secret_name(spec, value)
    if wanted is not None:
        return f"{_split_scheme(spec, value)[0]}{secrets[wanted]}"

    def replace_variable(reference: re.Match[str]) -> str:
        variable, default = reference[1], reference[2]
        if variable not in environ and default is None:
            text = f"its variable {name} needs {variable}, which is not set here"
            raise LaunchFailed(text, f"set {variable}, or give it a default: ${{{variable}:-…}}")
        return environ.get(variable, default or "")

    return _VARIABLE.sub(replace_variable, value)
