"""`limits_of`: every limit of a plugin as a host would apply it, with its source. Reads settings and starts nothing.

Timeouts are those of a machine without `PLUGBAY_TIME_FACTOR`. A value that differs from the contract's is the
manifest's: a spec does not keep which fields its manifest has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from plugbay.contracts.registry import CONTRACTS
from plugbay.host.config.config import CONCURRENCY, Config
from plugbay.host.confinement.policy import Confinement
from plugbay.model.spec import PluginSpec, Timeouts
from plugbay.process.limits import Rlimits

CONTRACT, MANIFEST, OPERATOR, HOST = "contract default", "manifest", "plugbay.toml", "host default"
SOURCES = (CONTRACT, MANIFEST, OPERATOR, HOST)

UNITS = {"cpu": "cores", "memory": "bytes", "file_size": "bytes", "tmp": "bytes", "state": "bytes"}


class Limit(msgspec.Struct, frozen=True):
    """One limit of a plugin."""

    name: str
    value: float | None
    """None: no limit."""
    unit: str
    """`seconds`, `bytes`, `cores`, or empty for a number."""
    source: str
    """One of `SOURCES`."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def limits_of(spec: PluginSpec, config: Config, confinement: Confinement) -> list[Limit]:
    """All limits of a plugin with these settings."""
    return [*_timeouts(spec, config), *_idle(spec), *_concurrency(spec, config), *_resources(spec, config, confinement)]


def _timeouts(spec: PluginSpec, config: Config) -> Iterator[Limit]:
    ours = config.plugin(spec.id).timeouts
    known = CONTRACTS[spec.contract].timeouts
    for name in Timeouts.__struct_fields__:
        declared, override = getattr(spec.timeouts, name), getattr(ours, name, None)
        source = CONTRACT if known is None or declared == getattr(known, name) else MANIFEST
        if known is None and name == "call":
            source = MANIFEST
        if override is not None:
            source = OPERATOR
        yield Limit(name, declared if override is None else override, "seconds", source)


def _idle(spec: PluginSpec) -> Iterator[Limit]:
    known = CONTRACTS[spec.contract].idle_seconds
    if known is not None or spec.idle_seconds is not None:
        yield Limit("idle", spec.idle_seconds, "seconds", CONTRACT if spec.idle_seconds == known else MANIFEST)


def _concurrency(spec: PluginSpec, config: Config) -> Iterator[Limit]:
    ours = config.plugin(spec.id).concurrency
    yield Limit("concurrency", ours or CONCURRENCY[spec.lifetime], "", OPERATOR if ours else HOST)


def _resources(spec: PluginSpec, config: Config, confinement: Confinement) -> Iterator[Limit]:
    """The limits of processes; of all processes together only if the plugin is confined."""
    ours, confined = config.plugin(spec.id), confinement.policy is not None
    settings = [ours.limits, *((ours.sandbox.limits, config.sandbox.limits) if confined else ())]
    named = {name for section in settings for name in section.model_dump(exclude_none=True)}
    values: dict[str, Any] = {}
    if confinement.policy is not None:
        values = dataclasses.asdict(confinement.policy.limits)
    else:
        process = dataclasses.asdict(ours.limits.over(Rlimits()))
        values = {name: process[name] for name in ("open_files", "file_size")}
    for name, value in values.items():
        yield Limit(name, value, UNITS.get(name, ""), OPERATOR if name in named else HOST)
