"""Schemas lie beside the manifest, within its folder, and can be enforced."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.contracts.vai.files import MAX_SCHEMA, path_problem
from tests.contracts.vai.manifests import OBJECT, MemorySite, export, good, manifest, problems, reported
from tests.support.requirements import requirement

INPUT = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def site(**files: Any) -> MemorySite:
    encoded = {
        f"{name}.json": value if isinstance(value, bytes) else json.dumps(value).encode()
        for name, value in files.items()
    }
    return MemorySite({"in.json": OBJECT, **encoded})


def tool(path: str, key: str = "input_schema") -> str:
    more = "" if key == "input_schema" else '\ninput_schema = "in.json"'
    return manifest(export(own=f"{key} = {json.dumps(path)}{more}"))


@requirement("vai:manifest-schemas")
def test_schemas_are_loaded_into_the_spec() -> None:
    text = manifest(export(own='input_schema = "a.json"\noutput_schema = "b.json"', config_schema='"./c.json"'))
    here = MemorySite({"a.json": json.dumps(INPUT).encode(), "b.json": OBJECT, "./c.json": OBJECT})
    (found,) = good(text, here).exports
    assert (found.input_schema, found.output_schema) == (INPUT, {"type": "object"})
    assert found.facts["config_schema"] == {"type": "object"}
    (bare,) = good(manifest()).exports
    assert (bare.output_schema, bare.facts["config_schema"]) == (None, None)
    assert "input_schema" not in found.facts


@requirement("vai:manifest-schema-paths")
@pytest.mark.parametrize("key", ["input_schema", "output_schema"])
@pytest.mark.parametrize("path", ["/etc/passwd", "../in.json", "a/../../b", "a\\..\\b", "C:/a", "", " ", "a\0b"])
def test_a_path_that_leads_out_is_refused(path: str, key: str) -> None:
    assert problems(tool(path, key)) == [("error", "path_escape", f"exports[0].tool.{key}")]


@pytest.mark.parametrize("path", ["a.json", "./a.json", "schemas/a b.json", "..a/b..c", "ä.json"])
def test_a_path_within_the_folder_is_fine(path: str) -> None:
    assert path_problem(path) is None


@requirement("vai:manifest-schema-paths")
def test_a_schema_that_is_not_there_is_refused() -> None:
    (found,) = reported(manifest(export(config_schema='"gone.json"')))
    assert (found.code, found.path) == ("file_missing", "exports[0].config_schema")
    assert "'gone.json'" in found.message


REFS = {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}}


@requirement("vai:manifest-schemas")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1, "a": 2}', "there twice"),
        (b"\xff", "not UTF-8"),
        (b"[" * 5_000, "not"),
        ([], "a schema is an object"),
        (True, "a schema is an object"),
        ({"type": "string"}, "must describe an object, not 'string'"),
        ({"type": "objekt"}, "must describe an object"),
        ({"properties": 7}, "cannot be used"),
        ({"properties": {"a": {"type": "nothing"}}}, "cannot be used"),
        ({"$ref": "https://example.com/schema.json"}, "outside itself"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "cannot be used"),
        ({**REFS, "$ref": "#/$defs/d0"}, "ways lead through it"),
    ],
)
def test_a_file_that_is_no_schema_anybody_can_use_is_refused(content: Any, words: str) -> None:
    (found,) = reported(tool("s.json"), site(s=content))
    assert (found.code, found.path) == ("invalid_schema", "exports[0].tool.input_schema")
    assert words in found.message


def test_a_schema_that_also_admits_other_things_than_objects_is_fine() -> None:
    good(tool("s.json"), site(s={"type": ["object", "null"]}))
    good(tool("s.json"), site(s={}))


def test_a_schema_of_the_largest_size_is_read_and_a_larger_one_refused() -> None:
    good(tool("s.json"), site(s=OBJECT.ljust(MAX_SCHEMA)))
    assert problems(tool("s.json"), site(s=OBJECT.ljust(MAX_SCHEMA + 1))) == [
        ("error", "too_large", "exports[0].tool.input_schema")
    ]


class CountingSite(MemorySite):
    reads = 0

    def read(self, path: str, limit: int) -> Any:
        self.reads += 1
        return super().read(path, limit)


def test_a_schema_that_many_exports_name_is_read_once() -> None:
    here = CountingSite()
    good(manifest(*(export(id=f"x{number}") for number in range(20))), here)
    assert here.reads == 1
