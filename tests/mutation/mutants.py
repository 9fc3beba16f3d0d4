"""The mutants of a module: its syntax tree with one change that alters a decision.

Left out are changes that no decision depends on: docstrings, types, texts for people, which have spaces or are
formatted, and the numbers of named limits, which are choices. A mutant is named by its function and the change, so its
name survives edits elsewhere.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
MAX_WORD = 40
MAX_SHOWN = 120


class Mutant(NamedTuple):
    """One changed module."""

    name: str
    """`function: line -> changed line`, of a long line the changed part; with a number where several are the same."""
    place: int
    change: int

    def tree(self, source: str) -> ast.Module:
        """The module with the change."""
        tree = ast.parse(source)
        _, node = _nodes(tree)[self.place]
        _changes(node, self.change)
        return ast.fix_missing_locations(tree)


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a module."""
    seen: Counter[str] = Counter()
    for place, (path, node) in enumerate(_nodes(ast.parse(source))):
        function = ".".join(each.name for each in path if isinstance(each, _SCOPES)) or "module"
        for change in range(_changes(node, None)):
            shown = path[-1] if len(_head(path[-1])) <= MAX_SHOWN else node
            name = f"{function}: {_head(shown)} -> {_changed_head(shown, node, change)}"
            seen[name] += 1
            yield Mutant(name if seen[name] == 1 else f"{name} #{seen[name]}", place, change)


def _changed_head(shown: ast.AST, node: ast.AST, change: int) -> str:
    """The first line with the change, after which the tree is as it was."""
    kind, fields = type(node), dict(vars(node))
    _changes(node, change)
    try:
        return _head(shown)
    finally:
        node.__class__ = kind
        vars(node).clear()
        vars(node).update(fields)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _head(node: ast.AST) -> str:
    """The first line of a statement or expression, in one form whatever its layout is."""
    return ast.unparse(node).splitlines()[0]


def _nodes(tree: ast.Module) -> list[tuple[list[ast.AST], ast.AST]]:
    """Each node that can be changed, with the scopes and the statement around it; always in the same order."""
    found: list[tuple[list[ast.AST], ast.AST]] = []

    def visit(node: ast.AST, path: list[ast.AST]) -> None:
        unread = isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr)
        if unread or _is_text(node) or _is_typing(node) or _is_limit(node):
            return
        if isinstance(node, ast.stmt):
            path = [*(each for each in path if isinstance(each, _SCOPES)), node]
        found.append((path, node))
        for child in _children(node):
            visit(child, path)

    for statement in tree.body:
        visit(statement, [])
    return found


def _children(node: ast.AST) -> list[ast.AST]:
    unread = {*_UNREAD, "keywords"} if isinstance(node, ast.ClassDef) else _UNREAD
    values = [value for name, value in ast.iter_fields(node) if name not in unread]
    every = [child for value in values for child in (value if isinstance(value, list) else [value])]
    return [child for child in every if isinstance(child, ast.AST)]


_UNREAD = ("annotation", "returns", "decorator_list", "msg")
"""Fields of no decision; those of a class (`frozen=True`) are none either."""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_typing(node: ast.AST) -> bool:
    """What only a type checker reads."""
    named = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    literal = isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"
    variable = isinstance(node, ast.Call) and ast.unparse(node.func) == "TypeVar"
    return (
        named or literal or variable or (isinstance(node, ast.Assign) and ast.unparse(node) == "TYPE_CHECKING = False")
    )


def _is_limit(node: ast.AST) -> bool:
    """`MAX_BYTES = 16 << 10`."""
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()):
        return False
    leaves = [each for each in ast.walk(node.value) if not isinstance(each, ast.BinOp | ast.operator)]
    return all(isinstance(each, ast.Constant) and type(each.value) in (int, float) for each in leaves)


def _changes(node: ast.AST, number: int | None) -> int:
    """How many changes a node has; with a number, that one is made."""
    possible = POSSIBLE.get(type(node))
    made = list(possible(node)) if possible else []
    if number is not None:
        field, value = made[number]
        if field:
            setattr(node, field, value)
        else:
            node.__class__ = type(value)
            vars(node).clear()
            vars(node).update(vars(value))
    return len(made)


Changes = Iterator[tuple[str, Any]]
"""Pairs of a field and its new value; without a field, the node becomes another one."""


def _compare(node: ast.Compare) -> Changes:
    for at, operator in enumerate(node.ops):
        yield "ops", [*node.ops[:at], COMPARISONS[type(operator)](), *node.ops[at + 1 :]]


def _boolean(node: ast.BoolOp) -> Changes:
    yield "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _unary(node: ast.UnaryOp) -> Changes:
    if isinstance(node.op, ast.Not):
        yield "", node.operand


def _binary(node: ast.BinOp | ast.AugAssign) -> Changes:
    if type(node.op) in OPERATORS:
        yield "op", OPERATORS[type(node.op)]()


def _constant(node: ast.Constant) -> Changes:
    value = node.value
    if isinstance(value, bool):
        yield "value", not value
    elif isinstance(value, int | float):
        yield "value", value + 1
    elif isinstance(value, str) and 0 < len(value) <= MAX_WORD and " " not in value:
        yield "value", f"{value}~"


def _call(node: ast.Call) -> Changes:
    if isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield "func", ast.Name(CALLS[node.func.id], ast.Load())


def _condition(node: ast.If | ast.IfExp | ast.While) -> Changes:
    if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):  # which have changes of their own
        yield "test", ast.UnaryOp(ast.Not(), node.test)


def _comprehension(node: ast.comprehension) -> Changes:
    yield from (("ifs", [*node.ifs[:at], *node.ifs[at + 1 :]]) for at in range(len(node.ifs)))


def _return(node: ast.Return) -> Changes:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "value", ast.Constant(None)


def _leave_out(node: ast.stmt) -> Changes:
    yield "", ast.Pass()


POSSIBLE: dict[type[ast.AST], Callable[[Any], Changes]] = {
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.AugAssign: _binary,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.If: _condition,
    ast.IfExp: _condition,
    ast.While: _condition,
    ast.comprehension: _comprehension,
    ast.Return: _return,
    ast.Raise: _leave_out,
    ast.Expr: _leave_out,
    ast.Delete: _leave_out,
}
