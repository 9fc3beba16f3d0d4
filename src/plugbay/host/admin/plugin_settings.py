"""`PluginSettings`: the settings and secrets of one plugin, as `plugbay config` and the dashboard show and change them.

A change is validated as a whole before it is saved, and takes effect when the plugin is reloaded. No secret is ever
returned. Every function blocks on files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plugbay.contracts.validation import suggestion
from plugbay.host.bindings import Bindings
from plugbay.host.config import settings
from plugbay.host.invocations.context import settings_of
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.spec import PluginSpec


class PluginSettings:
    """One plugin with its settings and the bindings that its host uses."""

    def __init__(self, spec: PluginSpec, bindings: Bindings, state: Path) -> None:
        """`state`: the folder in which settings are saved."""
        self.spec = spec
        self.settings = settings_of(spec)
        self._bindings = bindings
        self._state = state

    def describe(self) -> dict[str, Any]:
        """The public JSON shape: enough for a form with every control, and no secret. Raises `ConfigInvalid`."""
        values = self._bindings.config_of(self.spec)
        secrets = self._bindings.secrets_of(self.spec)
        problems = [*settings.check_config(self.settings, values), *settings.check_secrets(self.settings, secrets)]
        return {
            "plugin": self.spec.id,
            **settings.describe(self.settings, values, secrets),
            "config": settings.without_secrets(self.settings, values),
            "config_schema": self.settings.config_schema,
            "problems": [problem.to_json() for problem in problems],
        }

    def saved(self) -> frozenset[str]:
        """The fields that were changed here; others have the value of plugbay.toml or their default."""
        return frozenset(settings.load_config(self._state, self.spec.id))

    def field_of(self, name: str) -> str:
        """The field of the config that a knob changes; any other name is a field itself."""
        return next((knob.binds_to for knob in self.settings.knobs if knob.name == name), name)

    def change(self, values: Mapping[str, Any]) -> dict[str, Failure]:
        """Change knobs and fields; returns the failures by name, and then nothing is changed.

        A string for a knob is parsed as an operator types it.
        """
        knobs = {knob.name for knob in self.settings.knobs}
        failures: dict[str, Failure] = {}
        with settings.changing(self._state):
            config, changed = self._bindings.config_of(self.spec), {}
            for name, value in values.items():
                set_one = settings.set_knob if name in knobs else settings.set_field
                after = set_one(self.settings, config, name, value)
                if isinstance(after, Failure):
                    failures[name] = after.with_detail(self.spec.id)
                    continue
                config = after
                changed[self.field_of(name)] = after[self.field_of(name)]
            if not failures and changed:
                saved = settings.load_config(self._state, self.spec.id)
                settings.save_config(self._state, self.spec.id, {**saved, **changed})
        return failures

    def reset(self, names: Iterable[str]) -> None:
        """Forget the changes of these knobs and fields."""
        unwanted = {self.field_of(name) for name in names}
        with settings.changing(self._state):
            saved = settings.load_config(self._state, self.spec.id)
            kept = {name: value for name, value in saved.items() if name not in unwanted}
            settings.save_config(self._state, self.spec.id, kept)

    def require_secret(self, name: str) -> None:
        """Raises `CallFailed` for a name that the plugin does not declare; one that declares none is not asked."""
        known = [item["name"] for item in settings.describe(self.settings, {})["secrets"]]
        if known and name not in known:
            text = f"there is no secret {name!r}{suggestion(name, known)}"
            raise CallFailed(Failure(Code.NOT_FOUND, text, plugin=self.spec.id, detail={"known": known}))

    def set_secret(self, name: str, value: str | None) -> None:
        """Save a secret, or remove it; raises `CallFailed` in words that do not reveal it."""
        with settings.changing(self._state):
            others = settings.load_secrets(self._state, self.spec.id)
            others.pop(name, None)
            known = settings.check_secrets(self.settings, others)
            kept = others if value is None else {**others, name: value}
            new = [problem for problem in settings.check_secrets(self.settings, kept) if problem not in known]
            if new:
                raise CallFailed(Failure(Code.INVALID_INPUT, f"{name} cannot be saved: {new[0]}", plugin=self.spec.id))
            settings.save_secrets(self._state, self.spec.id, kept)
