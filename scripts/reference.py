"""The generated pages of docs/reference: commands, REST operations, Python API, plugbay.toml, metrics, contracts.

Each page is made from the code that it describes, so it cannot say anything else. `scripts/generate.py` writes them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import typer
from fastapi import FastAPI
from pydantic import BaseModel

from plugbay.cli.app import app_for
from plugbay.cli.commands import SECTIONS
from plugbay.contracts.registry import CONTRACTS
from plugbay.host.config.config import Config, LogLevel
from plugbay.model.spec import Timeouts
from plugbay.sdk.contract_support import SUPPORTED
from plugbay.server import api, domain
from plugbay.server.api import metrics
from plugbay.server.api.caller import NEEDS, NEEDS_ONE
from plugbay.server.app import ROUTERS

NOTE = "Made from {0} by `scripts/generate.py`; `make check` fails when this page is stale.\n"
WIDTH = "110"


def pages() -> dict[str, str]:
    """The text of each page, by its name below docs/reference."""
    return {
        "commands.md": commands_page(),
        "rest.md": rest_page(),
        "python-host.md": python_page("plugbay", PLUGBAY),
        "python-sdk.md": python_page("plugbay.sdk", SDK),
        "configuration.md": configuration_page(),
        "metrics.md": metrics_page(),
        "contracts.md": contracts_page(),
    }


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


# Commands.

COMMANDS = """\
# Commands

{note}
`plugbay COMMAND --help` prints the same texts. `plugbay help TOPIC` explains a concept, such as `grants` or `sandbox`.
[Exit statuses](../errors.md#exit-statuses) are the same for all commands.
"""


def commands_page() -> str:
    parts = [COMMANDS.format(note=NOTE.format("the code of each command"))]
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        for section, names in SECTIONS.items():
            parts.append(f"## {section}\n")
            for name in names.split():
                command: Any = typer.main.get_command(app_for(name))
                context = typer.Context(command, info_name="plugbay")
                parts += _help(command.commands[name], context, name, 3)
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if before is None else {"COLUMNS": before})
    return "\n".join(parts)


def _help(command: Any, parent: Any, name: str, level: int) -> Iterator[str]:
    context = typer.Context(command, info_name=name, parent=parent)
    text = "\n".join(line.rstrip() for line in command.get_help(context).strip("\n").splitlines())
    yield f"{'#' * level} {context.command_path}\n\n```text\n{text}\n```\n"
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _help(command.get_command(context, each), context, each, level + 1)


# REST.

REST = """\
# REST operations

{note}
A running server has the same as `/openapi.json`. [The control plane](../control-plane.md) explains the resources and
lists each error code; *needs* is the role or scope of the caller. Times are RFC 3339 in UTC.
"""


def rest_page() -> str:
    app = FastAPI()
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    document = app.openapi()
    schemas = document["components"]["schemas"]
    parts, group = [REST.format(note=NOTE.format("the OpenAPI document"))], ""
    for path, operations in document["paths"].items():
        first = re.split(r"[/:{]", path.removeprefix("/api").removeprefix("/v1").lstrip("/"))[0]
        title = ("Host: " if path.startswith("/api") else "") + (first or "root")
        if title != group:
            parts.append(f"## {title}\n")
            group = title
        for method, operation in operations.items():
            parts.append("\n".join(_operation(f"{method.upper()} {path}", operation, schemas)))
    return "\n".join(parts)


def _operation(name: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    text = " ".join(operation.get("description", "").split())
    yield f"{_wrapped(text or operation['summary'] + '.')}\n"
    needs = operation.get(NEEDS_ONE) or operation.get(NEEDS)
    word = " or " if operation.get(NEEDS_ONE) else ", "
    yield f"Needs: {word.join(f'`{need}`' for need in needs) if needs else 'no key'}\n"
    rows = [
        (each["name"], each["in"], _schema_type(each["schema"]), each["required"], each.get("description", ""))
        for each in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    fields = _resolved(body, schemas)
    required = fields.get("required", ())
    for field, schema in fields.get("properties", {}).items():
        rows.append((field, "body", _schema_type(schema), field in required, schema.get("description", "")))
    if rows:
        yield "| parameter | in | type | required | |\n|---|---|---|---|---|"
        yield from (
            f"| `{field}` | {place} | {_cell(kind)} | {'yes' if must else ''} | {_cell(about)} |"
            for field, place, kind, must, about in rows
        )
        yield ""


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _schema_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_schema_type(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_schema_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# Python.

PLUGBAY = "For programs that run plugins: [embed a host](../embed.md) shows how to use it."
SDK = "For authors of plugins: [write a plugin](../author.md) shows how to use it."


def python_page(name: str, about: str) -> str:
    module = importlib.import_module(name)
    parts = [f"# Python API: `{name}`\n\n{about}\n\n{NOTE.format('the docstrings')}"]
    for each in sorted(module.__all__, key=str.lower):
        value = getattr(module, each)
        if isinstance(value, type):
            parts += _class(each, value)
        elif callable(value):
            parts.append(f"## {each}\n\n```text\n{each}{_signature(value)}\n```\n\n{_doc(value)}\n")
        elif each != "__version__":
            parts.append(f"## {each}\n\n`{value!r}`\n")
    return "\n".join(parts)


def _class(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base not in (object, msgspec.Struct))
    is_made = "__init__" in vars(cls) or issubclass(cls, msgspec.Struct)
    made = _signature(cls).removesuffix(" -> None") if is_made else ""
    below = f"Based on `{bases}`.\n\n" if bases else ""
    yield f"## {name}\n\n```text\nclass {name}{made}\n```\n\n{below}{_doc(cls)}\n"
    for field, (kind, about) in _attributes(cls).items():
        yield _wrapped(f"- `{field}: {kind}`{f': {about}' if about else ''}", "  ")
    yield ""
    for member, value in sorted(vars(cls).items()):
        if member.startswith("_") or not (about := _doc(value)):
            continue
        if isinstance(value, property):
            yield f"### {name}.{member}\n\n{about}\n"
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            word = "async " if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else ""
            yield f"### {name}.{member}\n\n```text\n{word}{member}{_signature(function)}\n```\n\n{about}\n"


def _attributes(cls: type) -> dict[str, tuple[str, str]]:
    """The annotated public fields of a class, each with its type and the string below it."""
    if issubclass(cls, str | int):  # an enumeration
        return {}
    found: dict[str, tuple[str, str]] = {}
    statements = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    for at, statement in enumerate(statements):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.target.id.startswith("_"):
                continue
            found[statement.target.id] = (ast.unparse(statement.annotation), _string_after(statements, at))
    return found


def _string_after(statements: list[ast.stmt], at: int) -> str:
    after = statements[at + 1] if at + 1 < len(statements) else None
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return " ".join(after.value.value.split())
    return ""


def _doc(value: object) -> str:
    """The docstring of a thing that has one of its own."""
    text = getattr(value, "__doc__", None) or ""
    return "" if isinstance(value, type) and text.startswith(f"{value.__name__}(") else inspect.cleandoc(text)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    written = function.__annotations__ if isinstance(function, type) else {}
    words: list[str] = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls") and not words:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            words.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
        annotation = written.get(parameter.name, parameter.annotation)
        words.append(stars + parameter.name + _annotation(annotation, ": ") + _default(parameter.default))
    arrow = _annotation(signature.return_annotation, " -> ")
    line = f"({', '.join(words)}){arrow}"
    if len(line) < 90:
        return line
    return "(\n    " + ",\n    ".join(words) + f",\n){arrow}"


def _annotation(annotation: Any, before: str) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return before + (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation)))


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return " = " + (repr(value) if isinstance(value, str | int | float | tuple | types.NoneType) else "…")


# plugbay.toml.

CONFIGURATION = """\
# plugbay.toml

{note}
The file of the operator: [operate plugins](../operate.md#plugbaytoml) shows one. Commands read the one in the current
folder, or `--config FILE`. An unknown key is an error with its line. Sizes are texts such as `"256 MiB"`; times are
seconds. `NAME` stands for a name of your choice, in `[plugins.NAME]` for the id of a plugin.
"""


def configuration_page() -> str:
    parts = [CONFIGURATION.format(note=NOTE.format("the models that read the file"))]
    parts += [text for name, field in Config.model_fields.items() for text in _section(name, field.annotation)]
    return "\n".join(parts)


def _section(path: str, annotation: Any) -> Iterator[str]:
    model, is_table_of = _model(annotation)
    if model is None:
        return
    if is_table_of:
        path = f"{path}.NAME"
    yield f"## `[{path}]`\n\n{_doc(model)}\n"
    yield "| key | type | default | |\n|---|---|---|---|"
    about = {
        name: entry
        for base in reversed(model.__mro__)
        if issubclass(base, BaseModel) and base is not BaseModel
        for name, entry in _attributes(base).items()
    }
    inner: list[tuple[str, Any]] = []
    for name, field in model.model_fields.items():
        if _model(field.annotation)[0] is not None:
            inner.append((name, field.annotation))
            yield f"| `{name}` | table | | [below](#{_slug(path, name, field.annotation)}) |"
            continue
        default = "required" if field.is_required() else _toml(field.get_default(call_default_factory=True))
        yield f"| `{name}` | {_cell(_plain(about[name][0]))} | {_cell(default)} | {_cell(about[name][1])} |"
    yield ""
    for name, nested in inner:
        yield from _section(f"{path}.{name}", nested)


def _slug(path: str, name: str, annotation: Any) -> str:
    full = f"{path}.{name}" + (".NAME" if _model(annotation)[1] else "")
    return re.sub(r"[^\w-]", "", full.lower())


def _model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model of a table, and whether it is one of several with names of their own."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    arguments = typing.get_args(annotation)
    models = [each for each in arguments if isinstance(each, type) and issubclass(each, BaseModel)]
    return (models[0], typing.get_origin(annotation) is dict) if models else (None, False)


WORDS = {
    "Seconds": "seconds",
    "Bytes": "size",
    "LogLevel": ", ".join(f"`{level}`" for level in typing.get_args(LogLevel)),
    "bool": "true or false",
    "str": "text",
    "int": "integer",
    "float": "number",
    "list[str]": "list of texts",
    "dict[str, str]": "table of texts",
    "dict[str, Any]": "table",
}


def _plain(annotation: str) -> str:
    """A type in the words of an operator."""
    tree = ast.parse(annotation, mode="eval").body
    if isinstance(tree, ast.BinOp):
        names = [ast.unparse(tree.left), ast.unparse(tree.right)]
        return " or ".join(_plain(name) for name in names if name != "None")
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) in ("Annotated", "Literal"):
        inner = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if ast.unparse(tree.value) == "Literal":
            return ", ".join(f"`{ast.literal_eval(each)}`" for each in inner)
        return _plain(ast.unparse(inner[0]))
    return WORDS.get(annotation, annotation)


def _toml(value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


# Metrics.

METRICS = """\
# Metrics

{note}
`GET /metrics` of `plugbay serve` has these in the format of Prometheus, for the operator of all orgs. The name of a
counter ends with `_total`; a histogram has `_bucket`, `_sum` and `_count`. Labels never contain ids of users, sessions
or requests.

| metric | kind | labels | |
|---|---|---|---|
"""


def metrics_page() -> str:
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {about} |\n"
        for name, kind, labels, about in _metrics()
    ]
    return METRICS.format(note=NOTE.format("the code that renders them")) + "".join(sorted(rows))


FAMILIES = {"CounterMetricFamily": "counter", "GaugeMetricFamily": "gauge", "HistogramMetricFamily": "histogram"}


def _metrics() -> Iterator[tuple[str, str, list[str], str]]:
    for node in ast.walk(ast.parse(inspect.getsource(metrics))):
        kind = FAMILIES.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if kind is None or not isinstance(node, ast.Call):
            continue
        name = node.args[0]
        if isinstance(name, ast.BinOp) and isinstance(name.right, ast.Constant):
            given = [ast.literal_eval(word.value) for word in node.keywords if word.arg == "labels"]
            labels = [label for names in given for label in names]
            yield _full(str(name.right.value), kind), kind, labels, ast.literal_eval(node.args[1])
    for name_, (kind, labels) in _metered().items():
        yield _full(name_, kind), kind, labels, metrics.HELP[name_]


def _full(name: str, kind: str) -> str:
    return metrics.PREFIX + name + ("_total" if kind == "counter" else "")


def _metered() -> dict[str, tuple[str, list[str]]]:
    """The counters and histograms of `Meters`, each with its labels, from the calls that fill them."""
    names = [
        info.name
        for package in (domain, api)
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    found: dict[str, tuple[str, list[str]]] = {}
    for module in map(importlib.import_module, names):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            name, kind = _meter(module, node)
            if kind and isinstance(node, ast.Call):
                found[name] = kind, sorted(word.arg for word in node.keywords if word.arg)
    return found


def _meter(module: types.ModuleType, node: ast.AST) -> tuple[str, str]:
    """The name and the kind of the meter that a call fills; empty: another call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return "", ""
    first = node.args[0]
    name = first.value if isinstance(first, ast.Constant) else getattr(module, ast.unparse(first), None)
    known = isinstance(name, str) and name in metrics.HELP
    return (str(name), {"count": "counter", "observe": "histogram"}.get(node.func.attr, "")) if known else ("", "")


# Contracts.

CONTRACT = """\
# Contracts

{note}
[Which contract do I need?](../which-contract.md) helps to choose.
[Architecture](../../ARCHITECTURE.md#six-contracts-one-machine) compares their messages, [states](../states.md) has
their state machines.

| contract | published as | manifest |
|---|---|---|
"""


def contracts_page() -> str:
    text = CONTRACT.format(note=NOTE.format("the contracts of the host and the SDK"))
    for contract in CONTRACTS.values():
        files = ", ".join(f"`{name}`" for name in contract.manifest_files)
        text += f"| [{contract.name}](../{contract.name}.md) | {contract.title} | {files} |\n"
    kinds = list(dict.fromkeys(kind for supported in SUPPORTED.values() for kind in supported))
    text += "\n## What a plugin of the SDK can declare\n\n"
    text += f"| declaration | {' | '.join(SUPPORTED)} |\n|---|{'---|' * len(SUPPORTED)}\n"
    for kind in kinds:
        marks = " | ".join("✓" if kind in supported else "" for supported in SUPPORTED.values())
        text += f"| {kind} | {marks} |\n"
    return text + TIMES + "\n".join(_times()) + "\n"


TIMES = """
## Times

Seconds. The manifests of contracts without a row set their own; `timeouts` in
[`plugbay.toml`](configuration.md#pluginsnametimeouts) overrides each. 0: the step does not exist.

"""


def _times() -> Iterator[str]:
    names = Timeouts.__struct_fields__
    yield f"| contract | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for contract in CONTRACTS.values():
        if contract.timeouts is not None:
            yield f"| {contract.name} | {' | '.join(f'{getattr(contract.timeouts, name):g}' for name in names)} |"
