"""Names: full ones always work, short ones where unique, otherwise the error lists the candidates."""

from __future__ import annotations

from pathlib import Path

from plugbay.host.catalog import Catalog, Entry
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


def test_an_ambiguous_name_lists_its_candidates() -> None:
    assert failure("shared").detail["candidates"] == ["a/shared", "b/shared"]


def test_an_unknown_name_suggests_what_is_near_or_lists_what_there_is() -> None:
    assert "did you mean" in failure("only_b").message
    assert failure("zzz").detail["candidates"] == ["a/shared", "a/only_a", "b/shared"]


def test_an_input_that_does_not_fit_names_the_path_and_the_rule() -> None:
    problem = entry("only_a").check_input(CODEC.dump({"n": "x"}), CODEC)
    assert problem is not None
    assert problem.code == Code.INVALID_INPUT
    assert problem.detail["errors"] == [{"path": "n", "rule": '"x" is not of type "integer"'}]
    assert entry("only_a").check_input(CODEC.dump({"n": 1}), CODEC) is None
    assert entry("a/shared").check_input(CODEC.dump(["anything"]), CODEC) is None
