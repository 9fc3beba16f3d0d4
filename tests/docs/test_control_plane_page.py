"""What the pages say of a server is true: tours run in one shell each, and the tables of routes and codes are whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from plugbay.server.api.caller import NEEDS, NEEDS_ONE
from plugbay.server.app import ROUTERS
from tests.docs.test_snippets import ROOT, pattern, snippets
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

PAGE, TOUR_PAGE, OPERATE, DASHBOARD = (
    ROOT / "docs" / f"{name}.md" for name in ("control-plane", "how-to/control-plane-tour", "operate", "dashboard")
)
SOURCES = [*(ROOT / "src/plugbay/server/domain").glob("*.py"), *(ROOT / "src/plugbay/server/api").rglob("*.py")]
TOUR, SERVER = "tour", "server"
CODE = r"[a-z_]+\.[a-z_]+"
STATUSES = {
    "invalid": 400,
    "unauthenticated": 401,
    "denied": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "unprocessable": 422,
    "unavailable": 503,
}
"""The makers of errors, and what each is answered with."""


class Shell:
    """One bash, as a reader has it: what a command sets is there for the next one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._count = 0

    def run(self, command: str) -> str:
        """What a command says, errors too; of one in the background, what it says meanwhile."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._count += 1
        mark = f"-- end of {self._count} --"
        # Nothing of what the shell is yet to be told is the command's to read.
        self._process.stdin.write(f"{{ {command}\n}} </dev/null\necho; echo '{mark}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == mark:
                return "".join(lines).strip("\n") + "\n"
            lines.append(line)
        raise AssertionError(f"the shell is gone after: {command}\n{''.join(lines)}")


@contextmanager
def bash(folder: Path) -> Iterator[Shell]:
    """A shell with a home of its own; whatever it has started and left is ended with it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PLUGBAY_S"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**kept, "PATH": path, "HOME": str(folder / "home"), "NO_COLOR": "1", "COLUMNS": "120"}
    with subprocess.Popen(
        ["bash"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Shell(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def commands(transcript: str) -> Iterator[tuple[str, str]]:
    """The commands of a transcript, each with what the page says comes of it."""
    for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


@exhaustive
@requirement("vai:control-tour")
def test_the_tour_with_curl_does_what_the_page_says(tmp_path: Path) -> None:
    write_files(TOUR_PAGE, tmp_path)
    assert follow(TOUR_PAGE, TOUR, tmp_path) > 50


@exhaustive
def test_the_commands_of_an_operator_talk_to_the_server(tmp_path: Path) -> None:
    assert follow(OPERATE, SERVER, tmp_path) > 8


@exhaustive
def test_a_link_into_the_dashboard_opens_once(tmp_path: Path) -> None:
    assert follow(DASHBOARD, SERVER, tmp_path) == 7


def write_files(page: Path, folder: Path) -> None:
    """The files that a page has its reader write."""
    for found, _, body, _ in snippets(page):
        if found.startswith("file "):
            path = folder / found.removeprefix("file ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(body, "utf-8")


def follow(page: Path, kind: str, folder: Path) -> int:
    """Give every command of these transcripts to one shell, and hold what it says against the page; how many."""
    folder.chmod(0o755)  # as a reader's own folder is: plugins with a user of their own are shown what is in it
    (folder / "home").mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    steps = [step for found, _, body, _ in snippets(page) if found == kind for step in commands(body)]
    with bash(folder) as shell:
        for command, expected in steps:
            said = shell.run(command)
            assert re.fullmatch(pattern(expected) + r"\s*", said), f"$ {command}\n{said}\n{_log(folder)}"
    return len(steps)


def _log(folder: Path) -> str:
    """The end of what the server logged."""
    path = folder / "serve.log"
    return path.read_text("utf-8")[-2000:] if path.exists() else ""


def test_a_shell_remembers_and_a_tour_that_lies_is_caught(tmp_path: Path) -> None:
    with bash(tmp_path) as shell:
        assert shell.run('NAME=Ada; told() { echo "$NAME $1"; }') == "\n"
        assert shell.run("told once; cat; told twice >&2") == "Ada once\nAda twice\n"
        assert re.fullmatch(pattern("Ada …\n") + r"\s*", shell.run("told once"))
        assert not re.fullmatch(pattern("Eve …\n") + r"\s*", shell.run("told once"))
        with pytest.raises(AssertionError, match="the shell is gone"):
            shell.run("exit 3")


def test_the_table_of_routes_names_every_route_with_who_may_ask() -> None:
    text = PAGE.read_text("utf-8").partition("## Every route")[2].partition("### Bodies")[0]
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (.*?) \|", text, re.MULTILINE)
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    real = {
        (method, route.path.replace(":path}", "}"), _needs(route)) for route in routes for method in route.methods or ()
    }
    assert {(method, path, needs) for method, path, needs in rows} == real
    assert len(rows) == len(real)


@requirement("vai:control-examples")
def test_the_table_of_bodies_has_the_example_of_every_body() -> None:
    text = PAGE.read_text("utf-8").partition("### Bodies")[2]
    rows = re.findall(r"^\| `([A-Z]+ /\S+)` \| `(.*)` \|$", text, re.MULTILINE)
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    real = [
        (f"{method} {route.path.replace(':path}', '}')}", json.dumps(example, ensure_ascii=False))
        for route in routes
        for method in sorted(route.methods or ())
        if (example := _example(route)) is not None
    ]
    assert len(real) > 30
    assert rows == real, "\n".join(f"| `{name}` | `{body}` |" for name, body in real)


def _example(route: APIRoute) -> Any:
    """The example of a route's JSON body; None: it has none."""
    if route.body_field is not None:
        body: Any = route.body_field.field_info.annotation
        return body.model_config["json_schema_extra"]["examples"][0]
    content = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    return content["application/json"]["schema"]["examples"][0] if content else None


def _needs(route: APIRoute) -> str:
    extra = route.openapi_extra or {}
    needs, one_of = extra.get(NEEDS), extra.get(NEEDS_ONE)
    if needs is None:
        return "anybody"
    return " or ".join(f"`{need}`" for need in one_of) if one_of else ", ".join(f"`{need}`" for need in needs)


def test_the_table_of_codes_names_every_code_with_its_status() -> None:
    text = PAGE.read_text("utf-8").partition("## Errors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", text, re.MULTILINE)
    listed = {(code, status) for first, codes in rows for status in _numbers(first) for code in _codes(codes)}
    made: set[tuple[str, int]] = set()
    for source in (path.read_text("utf-8") for path in SOURCES):
        made.update(
            (code, STATUSES[maker])
            for maker, code in re.findall(rf'\b(\w+)\(\s*"({CODE})"', source)
            if maker in STATUSES
        )
        made.update((f"{kind}.not_found", 404) for kind in re.findall(r'\bnot_found\(\s*"([a-z_]+)"', source))
        made.update((code, int(status)) for code, status in re.findall(rf'\w+, "({CODE})", (\d\d\d),', source))
    assert len(made) > 80
    assert made - listed == set()


def test_the_table_of_codes_names_what_validate_finds() -> None:
    rules = (ROOT / "src/plugbay/server/domain/bindings.py").read_text("utf-8")
    found = set(re.findall(rf'Finding\("({CODE})"', rules))
    assert len(found) > 10 and found <= _codes(PAGE.read_text("utf-8"))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{3}", text)]


def _codes(text: str) -> set[str]:
    return set(re.findall(rf"`({CODE})`", text))
