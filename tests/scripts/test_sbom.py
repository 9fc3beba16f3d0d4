"""The bill of materials names what is installed, and the same content gives the same bytes."""

from __future__ import annotations

import json
from importlib import metadata

import plugbay
from scripts.sbom import bill, collect

FILES = {"plugbay-0.1.0-py3-none-any.whl": "ab" * 32}


def test_the_bill_lists_each_library_with_version_licence_and_scope() -> None:
    document = json.loads(bill("plugbay", plugbay.__version__, ["serve", "uvloop"], FILES, 1_800_000_000))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["timestamp"] == "2027-01-15T08:00:00+00:00"
    assert document["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    components = {item["name"]: item for item in document["components"]}
    version = metadata.version("msgspec")
    assert components["msgspec"] == {
        "type": "library",
        "bom-ref": f"pkg:pypi/msgspec@{version}",
        "purl": f"pkg:pypi/msgspec@{version}",
        "name": "msgspec",
        "version": version,
        "scope": "required",
        "licenses": [{"expression": "BSD-3-Clause"}],
    }
    assert components["fastapi"]["scope"] == components["starlette"]["scope"] == "optional"
    assert components["plugbay-sdk"]["scope"] == "required"
    assert not components.keys() & {"plugbay", "pytest", "nats-py"}
    assert all(item["licenses"] for item in components.values())


def test_every_reference_of_a_dependency_is_a_component() -> None:
    document = json.loads(bill("plugbay", plugbay.__version__, ["serve"], FILES, 0))
    known = {item["bom-ref"] for item in (*document["components"], document["metadata"]["component"])}
    assert {item["ref"] for item in document["dependencies"]} == known
    assert {each for item in document["dependencies"] for each in item["dependsOn"]} <= known


def test_the_sdk_requires_nothing() -> None:
    assert collect("plugbay-sdk", ()) == {"plugbay-sdk": set()}
    assert "pydantic-core" in collect("plugbay-sdk", ["testing"])


def test_the_same_content_has_the_same_serial_number_and_other_content_another() -> None:
    first, again, later = (bill("plugbay-sdk", "0.1.0", (), {}, epoch) for epoch in (1, 1, 2))
    assert first == again
    assert json.loads(first)["serialNumber"] != json.loads(later)["serialNumber"]
