"""The software bill of materials of a distribution: CycloneDX 1.6, JSON.

It lists the libraries that the distribution and its extras require, in the versions that are installed here: those of
constraints.txt. Time and serial number follow from the content, so the same release has the same bytes everywhere.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SPEC_VERSION = "1.6"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/")

Libraries = dict[str, set[str]]
"""The names that each library requires directly, by name."""


def bill(name: str, version: str, extras: Iterable[str], files: Mapping[str, str], epoch: int) -> str:
    """The bill of an installed distribution; `files` are the SHA-256 sums of its artefacts, by file name."""
    required = collect(name, ())
    optional = collect(name, extras)
    root = {
        **_component(name, version),
        "hashes": [{"alg": "SHA-256", "content": sum_} for _, sum_ in sorted(files.items())],
        "properties": [{"name": "plugbay:artefact", "value": file} for file in sorted(files)],
    }
    others = sorted(optional.keys() - {canonicalize_name(name)})
    components = [
        {**_component(other, _version(other)), "scope": "required" if other in required else "optional"}
        for other in others
    ]
    document = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(), "component": root},
        "components": components,
        "dependencies": [
            {
                "ref": _purl(one, _version(one)),
                "dependsOn": [_purl(two, _version(two)) for two in sorted(optional[one])],
            }
            for one in sorted(optional)
        ],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    return json.dumps({**document, "serialNumber": f"urn:uuid:{serial}"}, indent=2, sort_keys=True) + "\n"


def collect(name: str, extras: Iterable[str]) -> Libraries:
    """A distribution and all libraries that it requires on this platform, with these extras."""
    found: Libraries = {}
    done: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    while waiting:
        one, extra = waiting.pop()
        if (one, extra) in done:
            continue
        done.add((one, extra))
        needed = list(_requirements(one, extra))
        found.setdefault(one, set()).update({canonicalize_name(each.name) for each in needed} - {one})
        waiting += [(canonicalize_name(each.name), more) for each in needed for more in ("", *each.extras)]
    return found


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    for requirement in map(Requirement, metadata.requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _version(name: str) -> str:
    return metadata.version(name)


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{canonicalize_name(name)}@{version}"


def _component(name: str, version: str) -> dict[str, Any]:
    purl = _purl(name, version)
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    licences = _licences(name)
    return {**found, "licenses": licences} if licences else found


def _licences(name: str) -> list[dict[str, Any]]:
    """The licence as the metadata has it: an SPDX expression, else the classifiers, else a short text."""
    written = metadata.metadata(name)
    if "License-Expression" in written:
        return [{"expression": written["License-Expression"]}]
    classifiers = [text for text in written.get_all("Classifier") or () if text.startswith("License ::")]
    if classifiers:
        return [{"license": {"name": text.rpartition(" :: ")[2]}} for text in sorted(classifiers)]
    text = written["License"].strip() if "License" in written else ""
    return [{"license": {"name": text}}] if text and "\n" not in text else []
