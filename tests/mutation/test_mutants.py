"""Each kind of decision has a mutant, each mutant a name of its own, and text for people has none."""

from __future__ import annotations

import ast

import pytest

from tests.mutation.__main__ import EQUIVALENT, MODULES, read_explained
from tests.mutation.mutants import mutants
from tests.mutation.trial import mirror_of, source_of


def names(source: str) -> list[str]:
    return [mutant.name for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a = b < c", ["a = b <= c"]),
        ("a = b == c is d", ["a = b != c is d", "a = b == c is not d"]),
        ("a = b in c", ["a = b not in c"]),
        ("a = b and c", ["a = b or c"]),
        ("a = not b", ["a = b"]),
        ("a = b - c", ["a = b + c"]),
        ("a |= b", ["a &= b"]),
        ("a = 7", ["a = 8"]),
        ("a = True", ["a = False"]),
        ("a = 'word'", ["a = 'word~'"]),
        ("a = min(b)", ["a = max(b)"]),
        ("a = any(b)", ["a = all(b)"]),
        ("a = b if c else d", ["a = b if not c else d"]),
        ("a = [b for b in c if d]", ["a = [b for b in c]"]),
        ("del a[b]", ["pass"]),
    ],
)
def test_a_decision_is_changed(source: str, changed: list[str]) -> None:
    assert names(source) == [f"module: {source} -> {each}" for each in changed]


def test_a_function_returns_nothing_raises_nothing_and_calls_nothing() -> None:
    source = "class A:\n    def f(self):\n        check(b)\n        raise c\n        return d\n"
    assert names(source) == ["A.f: check(b) -> pass", "A.f: raise c -> pass", "A.f: return d -> return None"]


@pytest.mark.parametrize(
    "source",
    [
        '"""Text for people."""',
        "a = 'text for people'",
        "a = f'{b}'",
        "a: Literal['b']",
        "def f(a: Literal['b']) -> Literal['c']: ...",
        "from a import b",
        "if TYPE_CHECKING:\n    a = 1",
        "Kind = Literal['a']",
        "T = TypeVar('T')",
        "MAX_BYTES = 16 << 10",
    ],
)
def test_text_and_types_have_no_mutant(source: str) -> None:
    assert [name for name in names(source) if "..." not in name] == []


def test_two_mutants_that_look_the_same_have_two_names() -> None:
    assert names("a = 1\na = 1") == ["module: a = 1 -> a = 2", "module: a = 1 -> a = 2 #2"]


def test_a_mutant_is_the_module_with_one_change() -> None:
    source = "a = 1\nb = 2"
    assert [ast.unparse(mutant.tree(source)) for mutant in mutants(source)] == ["a = 2\nb = 2", "a = 1\nb = 3"]


def test_each_module_has_mutants_and_tests_and_each_explained_mutant_exists() -> None:
    explained = read_explained(EQUIVALENT)
    assert set(explained) <= set(MODULES)
    for module in MODULES:
        there = names(source_of(module).read_text("utf-8"))
        assert there and len(set(there)) == len(there) and mirror_of(module).is_file()
        assert [name for name in explained.get(module, {}) if name not in there] == []
