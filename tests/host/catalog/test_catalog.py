"""Names: full ones always work, short ones where unique, otherwise the error lists the candidates."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export, PluginSpec
from plugbay.wire.fast_json import MsgspecCodec

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


CODEC = MsgspecCodec()


def spec(plugin_id: str, *exports: Export) -> PluginSpec:
    return PluginSpec(plugin_id, "1", "rune", Path("/p"), ("x",), exports=exports)


CATALOG = Catalog(
    [
        spec("a", Export("tool", "shared"), Export("tool", "only_a", input_schema=SCHEMA)),
        spec("b", Export("tool", "shared")),
    ]
)


def entry(name: str) -> Entry:
    found = CATALOG.resolve(name)
    assert isinstance(found, Entry)
    return found


def failure(name: str) -> Failure:
    found = CATALOG.resolve(name)
    assert isinstance(found, Failure)
    assert found.code == Code.NOT_FOUND
    return found


def test_a_full_name_always_resolves_and_a_short_one_where_it_is_unique() -> None:
    assert entry("b/shared").spec.id == "b"
    assert entry("only_a").full_name == "a/only_a"


@pytest.mark.parametrize("kind", ["", "tool"])
def test_no_export_is_known_by_what_reads_like_the_full_name_of_anothers(kind: str) -> None:
    catalog = Catalog([spec("evil", Export("tool", "files/read"), Export("tool", "else/where")), spec("files")])
    for name, found in (("files/read", False), ("evil/files/read", True), ("else/where", True)):
        assert isinstance(catalog.resolve(name, kind), Entry) is found
    catalog.replace(spec("evil"), {"files/read": Failure(Code.CAPABILITY_NOT_ALLOWED, "it is new")})
    unknown, disabled = catalog.resolve("files/read", kind), catalog.resolve("evil/files/read", kind)
    assert isinstance(unknown, Failure) and unknown.code == Code.NOT_FOUND
    assert isinstance(disabled, Failure) and disabled.code == Code.CAPABILITY_NOT_ALLOWED


def test_what_is_learned_later_is_found_under_both_of_its_names() -> None:
    catalog = Catalog([spec("a", Export("tool", "t"))])
    assert catalog.learn("a", [{"name": "t", "description": "new", "input_schema": SCHEMA}]) == []
    for name in ("t", "a/t"):
        found = catalog.resolve(name)
        assert isinstance(found, Entry) and found.export.description == "new"
        assert found.check_input(CODEC.payload({"n": "x"}), CODEC) is not None


def test_however_much_is_learned_at_once_all_names_are_gone_through_once() -> None:
    class Counting(Catalog):
        passes = 0

        def _index_names(self) -> None:
            self.passes += 1
            super()._index_names()

    names = [f"t{number}" for number in range(100)]
    catalog = Counting([spec("a", *(Export("tool", name) for name in names))])
    before = catalog.passes
    catalog.learn("a", [{"name": name, "description": "new", "input_schema": SCHEMA} for name in names])
    assert catalog.passes == before + 1


def test_an_ambiguous_name_lists_its_candidates() -> None:
    assert failure("shared").detail["candidates"] == ["a/shared", "b/shared"]


def test_an_unknown_name_suggests_what_is_near_or_lists_what_there_is() -> None:
    assert "did you mean" in failure("only_b").message
    assert failure("zzz").detail["candidates"] == ["a/shared", "a/only_a", "b/shared"]


def test_an_input_that_does_not_fit_names_the_path_and_the_rule() -> None:
    problem = entry("only_a").check_input(CODEC.payload({"n": "x"}), CODEC)
    assert problem is not None
    assert problem.code == Code.INVALID_INPUT
    assert problem.detail["errors"] == [{"path": "n", "rule": '"x" is not of type "integer"'}]
    assert entry("only_a").check_input(CODEC.payload({"n": 1}), CODEC) is None
    assert entry("a/shared").check_input(CODEC.payload(["anything"]), CODEC) is None


def named(plugin_id: str, *exports: tuple[str, str]) -> PluginSpec:
    made = tuple(Export(kind, name) for kind, name in exports)
    return PluginSpec(plugin_id, "1", "ainb", Path(plugin_id), ("x",), exports=made)


KINDS = Catalog(
    [
        named("usage", ("screen", "usage"), ("cli_namespace", "usage"), ("screen", "burndown")),
        named("notes", ("cli_namespace", "notes"), ("screen", "list")),
        named("tasks", ("screen", "list")),
    ]
)


def of_kind(name: str, kind: str, catalog: Catalog = KINDS) -> Entry:
    entry = catalog.resolve(name, kind)
    assert isinstance(entry, Entry)
    assert catalog.current(entry) is entry
    return entry


def test_a_screen_and_a_namespace_of_one_name_are_both_there() -> None:
    names = [entry.full_name for entry in KINDS.of_kind("screen")]
    assert names == ["usage/usage", "usage/burndown", "notes/list", "tasks/list"]
    assert [entry.full_name for entry in KINDS.of_kind("cli_namespace")] == ["usage/usage", "notes/notes"]
    assert of_kind("usage", "screen").export.kind == "screen"
    assert of_kind("usage", "cli_namespace").export.kind == "cli_namespace"
    first = KINDS.resolve("usage")
    assert isinstance(first, Entry) and first.export.kind == "screen"


def test_within_a_kind_a_full_name_always_works_and_a_short_one_where_it_is_unique() -> None:
    assert of_kind("tasks/list", "screen").spec.id == "tasks"
    assert of_kind("burndown", "screen").spec.id == "usage"
    refusal = KINDS.resolve("list", "screen")
    assert isinstance(refusal, Failure)
    assert refusal.message == "2 plugins have a screen 'list'; use one of notes/list, tasks/list"
    assert refusal.detail["candidates"] == ["notes/list", "tasks/list"]


@pytest.mark.parametrize(
    ("catalog", "kind", "name", "text"),
    [
        (KINDS, "screen", "burndwn", "no screen is called 'burndwn'; did you mean burndown"),
        (KINDS, "cli_namespace", "zzz", "no cli namespace is called 'zzz'; there is usage/usage, notes/notes"),
        (KINDS, "cli_namespace", "burndown", "no cli namespace is called 'burndown'"),
        (Catalog([]), "screen", "x", "no screen is called 'x'"),
    ],
)
def test_an_unknown_name_of_a_kind_is_told_what_there_is(catalog: Catalog, kind: str, name: str, text: str) -> None:
    refusal = catalog.resolve(name, kind)
    assert isinstance(refusal, Failure) and refusal.code == Code.NOT_FOUND
    assert refusal.message.startswith(text)


def test_a_plugin_that_offers_something_else_keeps_its_place_among_the_others() -> None:
    first, second = _spec("a", "one"), _spec("b", "two")
    catalog = Catalog([first, second])
    entry = catalog.resolve("a/one")
    assert isinstance(entry, Entry)
    catalog.replace(_spec("a", "three"), {})
    assert [each.full_name for each in catalog.entries()] == ["a/three", "b/two"]
    gone = catalog.current(entry)
    assert isinstance(gone, Failure) and gone.code == Code.NOT_FOUND


def test_the_names_of_a_plugin_that_was_removed_are_free() -> None:
    catalog = Catalog([_spec("a", "one"), _spec("b", "one")])
    assert isinstance(catalog.resolve("one"), Failure)
    catalog.remove("a")
    entry = catalog.resolve("one")
    assert isinstance(entry, Entry) and entry.spec.id == "b"
    assert isinstance(catalog.resolve("a/one"), Failure)


def test_what_is_barred_is_not_listed_and_says_why_it_cannot_be_used() -> None:
    catalog = Catalog([_spec("a", "one")])
    why = Failure(Code.CAPABILITY_NOT_ALLOWED, "it changed", plugin="a")
    catalog.replace(_spec("a"), {"one": why})
    assert catalog.entries() == []
    assert catalog.disabled("a") == {"one": why}
    for name in ("one", "a/one"):
        assert catalog.resolve(name) is why
    assert catalog.resolve("one", "tool") is why


def test_an_export_that_may_be_used_goes_before_one_of_its_name_that_may_not() -> None:
    catalog = Catalog([_spec("a", "one"), _spec("b", "two")])
    catalog.replace(_spec("b"), {"one": Failure(Code.CAPABILITY_NOT_ALLOWED, "it is new", plugin="b")})
    entry = catalog.resolve("one")
    assert isinstance(entry, Entry) and entry.full_name == "a/one"


def _spec(plugin_id: str, *tools: str) -> PluginSpec:
    exports = tuple(Export("tool", name, input_schema={"type": "object"}) for name in tools)
    return PluginSpec(plugin_id, "1", "mcp", Path("/"), ("run",), exports=exports)


def test_a_schema_is_compiled_at_its_first_use_and_one_that_cannot_be_checks_nothing() -> None:
    unlooked = {"type": "nonsense"}
    catalog = Catalog([spec("a", Export("tool", "t", input_schema=SCHEMA), Export("tool", "u", input_schema=unlooked))])
    good, bad = catalog.resolve("t"), catalog.resolve("u")
    assert isinstance(good, Entry) and isinstance(bad, Entry)
    assert good.check._validator is None, "nobody has used it"
    assert good.check_input(b"{}", CODEC) is not None
    assert good.check._validator is good.check.validator() is not None
    assert bad.check_input(b"{}", CODEC) is None
    catalog.replace(good.spec, {})
    again = catalog.resolve("t")
    assert isinstance(again, Entry) and again.check is good.check
