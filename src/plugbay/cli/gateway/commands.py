"""Builds the commands of `resources` from `routes.json`, sends their requests and prints the answers.

Parameters of the path are arguments, as is the only required word of a body; everything else is an option. Words that
the API never returns, such as the value of a secret, come from standard input.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import typer

from plugbay.cli import completion, remote
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.gateway import dry_run
from plugbay.cli.gateway.record_view import show_record
from plugbay.cli.gateway.resources import IDS, OWN_IDS, RESOURCES
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.options import AsJson, Server, TokenFile, read_json, read_secret
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.cli.gateway.resources import Resource, Source, Verb
    from plugbay.cli.remote import ServerClient

LISTED = 50
"""Records of a list unless `--limit` says otherwise."""
PAGE = 200
"""The most records that the API puts on one page."""

UNFINISHED = frozenset({"queued", "pending", "running", "delivering"})
MOST_LINES = 24
"""Lines of one field of the answer to a change; `show` has all of them."""

STATUSES = {
    "failed": Exit.PLUGIN_ERROR,
    "retryable_failure": Exit.PLUGIN_ERROR,
    "dead_letter": Exit.PLUGIN_ERROR,
    "cancelled": Exit.FAILURE,
    "timed_out": Exit.TIMEOUT,
}
"""Exit statuses of work that ended without success."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two looks at work that goes on."""

ARCHIVE = "application/vnd.vai.plugin.package.v1.tar+gzip"

WORDS = {
    "org_id": "The org.",
    "project_id": "The project.",
    "session_id": "The session.",
    "chain_id": "The chain.",
    "run_id": "The run.",
    "binding_id": "The binding.",
    "package_id": "The package, such as acme/devkit.",
    "package_version": "The version of the package.",
    "export_id": "The export of the package.",
    "status": "The status.",
    "metadata": "Labels of your own.",
    "config": "The configuration of the plugin.",
    "traffic_percent": "The share of sessions that the binding serves.",
    "name": "The name.",
}
"""Help for parameters that the API does not explain."""

FILES = frozenset({"public_key"})
"""Words that are long enough for a file: `@FILE` reads one."""

TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}


class Parameter(NamedTuple):
    """An argument or option, and its place in the request."""

    place: str
    """`path`, `query` or `body`."""
    path: tuple[str, ...]
    kind: str
    required: bool
    help: str
    choices: tuple[str, ...]
    secret: bool

    @property
    def name(self) -> str:
        """`--chain` for `chain_id`; the org and the project of a scope need no prefix."""
        words = self.path[1:] if self.path[0] == "scope" else self.path
        name = "_".join(words)
        return name.removesuffix("_id") if self.kind == "string" else name


class Route(NamedTuple):
    """A route of the API."""

    method: str
    path: str
    help: str
    parameters: tuple[Parameter, ...]
    paged: bool
    answer: str
    """`json`, `events`, `followed` (events with `follow=true`, else JSON), `bytes` or `none`."""


@cache
def routes() -> dict[str, Route]:
    """All routes by `METHOD path`."""
    import msgspec

    table = msgspec.json.decode(resources.files(__package__).joinpath("routes.json").read_bytes())
    return {name: _route(name, entry) for name, entry in table.items()}


def _route(name: str, entry: dict[str, Any]) -> Route:
    method, path = name.split(" ")
    parameters = tuple(
        Parameter(
            each["in"],
            tuple(each["path"]),
            each["kind"],
            each["required"],
            each["help"] or WORDS.get(each["path"][-1], ""),
            tuple(each.get("choices", ())),
            each.get("secret", False),
        )
        for each in entry["parameters"]
    )
    return Route(method, path, entry["help"], parameters, entry["paged"], entry["answer"])


# Building commands.


def group(name: str, *, empty: bool = False) -> typer.Typer:
    """The group of this name; `empty` for a list of groups, which needs no commands."""
    from plugbay.cli.gateway.audit import verify

    own: dict[tuple[str, str], Callable[..., None]] = {("package", "add"): add_package, ("audit", "verify"): verify}
    resource = RESOURCES[name]
    app = typer.Typer(name=name, help=resource.help, epilog=resource.examples, cls=HelpGroup, no_args_is_help=True)
    for verb, command in {} if empty else resource.verbs.items():
        run = own.get((name, verb)) or _command(resource, command)
        app.command(verb, cls=HelpCommand, help=routes()[command.route].help)(run)
    return app


def _command(resource: Resource, verb: Verb) -> Callable[..., None]:
    """The function of a command, with the signature that Typer reads."""
    route = routes()[verb.route]

    def run(**given: Any) -> None:
        Request(resource, verb, route, given).run()

    words, group = arguments(route), next(name for name, each in RESOURCES.items() if each is resource)
    parameters = [
        _typed(each, _completer(group, route, each), argument=each in words)
        for each in route.parameters
        if not each.secret
    ]
    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)
    if route.paged:
        limit = typer.Option(metavar="N", min=1, help=f"Records at most; {LISTED} by default.")
        parameters.append(_keyword("limit", Annotated[int, limit], LISTED))
    if verb.work:
        parameters.append(
            _keyword("wait_for_end", Annotated[bool, typer.Option("--wait", help="Wait for the end.")], False)
        )
    if route.answer == "bytes":
        out = typer.Option(metavar="FILE", help="Write to this file instead of stdout.")
        parameters.append(_keyword("out", Annotated[Path | None, out], None))
    parameters.append(_keyword("server", Server, None))
    parameters.append(_keyword("token_file", TokenFile, None))
    if route.answer != "bytes":
        parameters.append(_keyword("as_json", AsJson, False))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def arguments(route: Route) -> list[Parameter]:
    """The parameters that are arguments."""
    words = [each for each in route.parameters if each.place == "path"]
    needed = [each for each in route.parameters if each.place == "body" and each.required and not each.secret]
    plain = [each for each in needed if each.kind == "string" and not each.choices and len(each.path) == 1]
    return [*words, *plain] if len(plain) == 1 else words


def id_list(source: Source) -> completion.Ids:
    """The list of the API that has the ids of a source."""
    resource = RESOURCES[source.group]
    about = source.about or resource.columns.split()[-1]
    return completion.Ids(routes()[resource.verbs["list"].route].path, id=source.id, about=about)


def _completer(group: str, route: Route, parameter: Parameter) -> completion.Completer | None:
    """The completer of a parameter; None for one that is not an id, and for the id of a record that is created."""
    source = OWN_IDS.get((group, parameter.path[-1])) or IDS.get(parameter.path[-1])
    if source is None or parameter.kind != "string":
        return None
    ids = id_list(source)
    if parameter.place == "body" and ids.path == route.path:
        return None
    return completion.ids_of(ids, needs={name: id_list(other) for name, other in IDS.items() if name in ids.path})


def _typed(parameter: Parameter, completer: completion.Completer | None, *, argument: bool) -> inspect.Parameter:
    kind: Any = TYPES.get(parameter.kind, list[str])
    if parameter.choices:
        kind = Literal[parameter.choices]
    metavar = parameter.name.upper()
    if argument:
        word = typer.Argument(metavar=metavar, help=parameter.help, autocompletion=completer)
        return _keyword(parameter.name, Annotated[kind, word])
    text, metavar = parameter.help, parameter.path[-1].removesuffix("_id").upper()
    if parameter.choices:
        metavar = "|".join(parameter.choices)
    elif parameter.path[-1] in FILES:
        metavar = "TEXT|@FILE"
    elif parameter.kind in ("integer", "number"):
        metavar = "N"
    elif parameter.kind in ("object", "objects"):
        metavar = "JSON"
        more = "KEY=VALUE, JSON, @FILE or -" if parameter.kind == "object" else "TEXT, JSON, @FILE or -"
        text = f"{text} {more}; repeatable.".strip()
    elif parameter.kind == "strings":
        text = f"{text} Repeatable.".strip()
    flag = f"--{parameter.name.replace('_', '-')}"
    flags = (flag, f"--no-{flag[2:]}") if parameter.kind == "boolean" else (flag,)
    shown = None if parameter.kind == "boolean" else metavar
    option = typer.Option(*flags, help=text, metavar=shown, autocompletion=completer)
    if parameter.required:
        return _keyword(parameter.name, Annotated[kind, option])
    return _keyword(parameter.name, Annotated[kind | None, option], None)


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


# Sending requests.


class Request:
    """One request of a command, and the print of its answer."""

    def __init__(self, resource: Resource, verb: Verb, route: Route, given: dict[str, Any]) -> None:
        self.resource = resource
        self.verb = verb
        self.route = route
        self.as_json = given.pop("as_json", False)
        self.limit = given.pop("limit") if route.paged else 0
        self.wait = given.pop("wait_for_end", False)
        self.out = given.pop("out", None)
        self.client: ServerClient = remote.find(given.pop("server"), given.pop("token_file"), quiet=self.as_json)
        self.path, self.query, self.body = self._fill(given)

    def _fill(self, given: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
        """The path, the query and the body."""
        path = self.route.path
        query: dict[str, Any] = {}
        body: dict[str, Any] = {}
        for parameter in self.route.parameters:
            value = read_secret(parameter.name) if parameter.secret else _value(parameter, given[parameter.name])
            if value is None:
                continue
            if parameter.place == "path":
                path = path.replace("{" + parameter.path[0] + "}", quote(str(value), safe=""))
            elif parameter.place == "query":
                query[parameter.path[0]] = value
            else:
                inner = body
                for step in parameter.path[:-1]:
                    inner = inner.setdefault(step, {})
                inner[parameter.path[-1]] = value
        has_body = any(each.place == "body" for each in self.route.parameters)
        return path, query, body if has_body else None

    def run(self) -> None:
        if self.route.answer == "events" or (self.route.answer == "followed" and self.query.get("follow")):
            self._show_events()
        elif self.route.answer == "bytes":
            self._save()
        elif self.route.paged:
            self._show_list(*self._collect())
        else:
            self._show_answer()

    def _send(self, **query: Any) -> Any:
        return self.client.request(self.route.method, self.path, self.body, {**self.query, **query})

    def _show_events(self) -> None:
        for name, data in self.client.events(self.route.method, self.path, self.body, **self.query):
            if self.as_json:
                output.print_line({"event": name, "data": data})
            else:
                output.out().single((f"{name} ", output.NAME), output.json_bytes(data).decode(), most=1000)

    def _save(self) -> None:
        data = self.client.download(self.path, **self.query)
        if self.out is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            self.out.write_bytes(data)
            output.note(f"wrote {len(data):,} bytes to {self.out}")

    def _collect(self) -> tuple[list[Any], bool]:
        """Up to `limit` records, and whether there are more."""
        found: list[Any] = []
        cursor = None
        while True:
            part = self._send(limit=min(PAGE, self.limit - len(found)), cursor=cursor)
            found += part["items"]
            cursor = part["next_cursor"]
            if cursor is None or len(found) >= self.limit:
                return found, cursor is not None

    def _show_list(self, items: list[Any], more: bool) -> None:
        if self.as_json:
            output.print_json({"asked": self.client.url, "items": items, "more": more})
            return
        if not items:
            output.note(f"the server {self.client.url} has none")
            return
        columns = (self.verb.columns or self.resource.columns).split()
        rows = [[_cell(item, column) for column in columns] for item in items]
        head = [_title(column) for column in columns]
        output.out().table(head, [(row[:-1], [row[-1]]) for row in rows])
        if more:
            output.note(f"there are more than {self.limit}; --limit N shows more of them")

    def _show_answer(self) -> None:
        answer = self._send()
        if isinstance(answer, dict) and answer.get("dry_run") is True:
            dry_run.show(answer, as_json=self.as_json)
            return
        if self.wait:
            answer = self._await_end(answer)
        if self.route.answer == "followed":
            self._show_list(answer["lines"], more=False)
            return
        if self.as_json:
            output.print_json(answer)
        elif answer is None:
            output.err().line((output.OK, output.GOOD_STYLE), " done")
        else:
            show_record(answer, most=None if self.route.method == "GET" else MOST_LINES)
        status = answer.get("status") if isinstance(answer, dict) else None
        if self.route.method != "GET" and (self.wait or "result" in (answer or ())) and status in STATUSES:
            raise typer.Exit(STATUSES[status])
        if isinstance(answer, dict) and answer.get("valid") is False:
            raise typer.Exit(Exit.FINDINGS)

    def _await_end(self, answer: dict[str, Any]) -> dict[str, Any]:
        id = answer.get("id") or answer["invocation_id"]
        path = f"{routes()[self.verb.work].path.partition('{')[0]}{quote(str(id), safe='')}"
        pause = FIRST_PAUSE
        while answer["status"] in UNFINISHED:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            answer = self.client.get(path)
        return answer


def add_package(
    source: Annotated[
        str, typer.Argument(metavar="FILE|oci://…", help="A package file, or oci://… for one in a registry.")
    ],
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a package to the server."""
    client = remote.find(server, token_file, quiet=as_json)
    route = routes()["POST /v1/plugin-packages"]
    if source.startswith("oci://"):
        answer = client.post(route.path, {"source": source})
    else:
        answer = client.upload(route.path, Path(source).read_bytes(), _upload_headers(Path(source)))
    if as_json:
        output.print_json(answer)
    else:
        show_record(answer, most=MOST_LINES)


def _upload_headers(archive: Path) -> dict[str, str]:
    """The content type, and the signature beside the archive, if there is one."""
    from base64 import b64encode

    from plugbay.packages.archive import signature_path

    signature = signature_path(archive)
    signed = {"x-vai-signature": b64encode(signature.read_bytes()).decode()} if signature.exists() else {}
    return {"content-type": ARCHIVE, **signed}


# Values and cells.


def _value(parameter: Parameter, given: Any) -> Any:
    """The JSON value of an argument or option; None: not given."""
    if given is None:
        return None
    if parameter.kind == "object":
        return {name: value for text in given for name, value in _pairs(text, parameter.name)}
    if parameter.path[-1] in FILES:
        return _content(given)
    if parameter.kind == "objects":
        return [item for text in given for item in _items(text, parameter)]
    return given


def _pairs(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """The members of an object: `KEY=VALUE`, JSON, `@FILE` or `-`. A value that is not JSON is a string."""
    key, is_pair, value = text.partition("=")
    if is_pair and key and not text.startswith(("{", "@")):
        yield key, _json_or_text(value)
        return
    document = read_json(_content(text), f"--{name}")
    if not isinstance(document, dict):
        raise refusal(f"--{name} is not an object", "write KEY=VALUE, or JSON like '{\"key\": 1}'", Exit.USAGE)
    yield from document.items()


def _items(text: str, parameter: Parameter) -> list[Any]:
    """Blocks or parts of a content: JSON, `@FILE`, `-`, or plain text, which becomes a part or a block of input."""
    if not text.startswith(("{", "[", "@")) and text != "-":
        part = {"type": "text", "text": text}
        return [{"kind": "input", "content": [part]} if parameter.path[-1] == "blocks" else part]
    document = read_json(_content(text), f"--{parameter.name}")
    return document if isinstance(document, list) else [document]


def _content(text: str) -> str:
    return Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text


def _json_or_text(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _title(column: str) -> str:
    """`ORG` for `scope.org_id`, `PUBLISHER` for `publisher.id`."""
    return column.removesuffix(".id").rpartition(".")[2].removesuffix("_id").replace("_", " ").upper()


def _cell(record: Any, column: str) -> str:
    for name in column.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    if record is None:
        return "-"
    return record if isinstance(record, str) else output.json_bytes(record).decode()
