"""What the command and the variables of a plugin refer to, put in when it is started: settings, secrets, variables.

    env = { API_KEY = "secret://api_key", REGION = "${AWS_REGION:-eu}" }

Owns the forms of a reference. A secret is one of the plugin's own, kept with `plugbay config secret`, and goes into
the environment of its process, never into its arguments. Contracts whose manifests know no references are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plugbay.contracts.mcp.bundle import fill, is_setting
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from plugbay.process.command import LaunchFailed

REFERRING = frozenset({"mcp"})
"""Contracts whose manifests may refer to what only the host knows."""

SECRET = "secret://"

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def secret_name(spec: PluginSpec, value: str) -> str | None:
    """The name of the secret that a value stands for; None when it is no reference. It may name the plugin first."""
    return value.removeprefix(SECRET).removeprefix(f"{spec.id}/") if value.startswith(SECRET) else None


def with_secrets(spec: PluginSpec) -> tuple[PluginSpec, list[Problem]]:
    """The spec with the secrets among its settings that its variables refer to, and which of these cannot be."""
    if spec.contract not in REFERRING:
        return spec, []
    names = {variable: name for variable, value in spec.env if (name := secret_name(spec, value)) is not None}
    problems = [
        Problem("invalid_value", f"env.{variable}", f"{SECRET}{name} is no secret of {spec.id}'s own")
        for variable, name in names.items()
        if not name or "/" in name
    ]
    problems += _misplaced(spec)
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


def _misplaced(spec: PluginSpec) -> list[Problem]:
    """References to secrets where none is looked up: the program would get the reference itself."""
    text = "a secret is the whole value of a variable; nothing else here is looked up"
    inside = [f"env.{name}" for name, value in spec.env if SECRET in value and not value.startswith(SECRET)]
    places = [*(["command"] if any(SECRET in word for word in spec.command) else []), *inside]
    return [Problem("invalid_value", place, text) for place in places]


def resolved(
    spec: PluginSpec,
    config: Mapping[str, Any] | None,
    secrets: Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> PluginSpec:
    """The spec as it is started; raises `LaunchFailed` for a variable that nobody has set."""
    if spec.contract not in REFERRING:
        return spec
    kept = secrets or {}
    filled = fill(spec, {**(config or {}), **kept})
    set_ = dict(filled.env)
    env = [
        # What somebody set is put in as it is, whatever it looks like.
        (name, set_[name] if is_setting(value) else _value(spec, name, value, kept, environ))
        for name, value in spec.env
        if name in set_
    ]
    return replace(filled, env=tuple(env))


def _value(spec: PluginSpec, name: str, value: str, secrets: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    wanted = secret_name(spec, value)
    if wanted is not None:
        return str(secrets[wanted])

    def found(reference: re.Match[str]) -> str:
        variable, default = reference[1], reference[2]
        if variable not in environ and default is None:
            text = f"its variable {name} needs {variable}, which is not set here"
            raise LaunchFailed(text, f"set {variable}, or give it a default: ${{{variable}:-…}}")
        return environ.get(variable, default or "")

    return _VARIABLE.sub(found, value)
