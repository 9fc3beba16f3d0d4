"""Completion of ids, through the protocol of the shells, against a real server."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.cli.completion import MOST, command_word, offer
from plugbay.cli.gateway.commands import id_list, routes
from plugbay.cli.gateway.resources import IDS, OWN_IDS
from tests.cli.conftest import Done, MakePlugin, Run, environment
from tests.cli.gateway.test_commands import world
from tests.server.test_server import served
from tests.support.worlds import World

__all__ = ["world"]

GROUPS = {
    "org show": "org_id",
    "project show org_1": "project_id",
    "key revoke": "key_id",
    "package show": "package",
    "binding update": "binding_id",
    "invocation follow": "invocation_id",
    "session branch": "session_id",
    "chain fork": "chain_id",
    "runs cancel": "run_id",
    "compaction show": "compaction_id",
    "harness resume": "execution_id",
    "delivery replay": "delivery_id",
    "marketplace install": "card_id",
    "secret delete": "name",
    "invocation create --binding": "binding_id",
    "session create --org org_1 --project": "project_id",
    "harness create": "binding_id",
}


def complete(run: Run, line: str, **env: str) -> Done:
    """The answer to bash for a line whose last word is typed, or to be typed after a space."""
    words = f"plugbay {line}".split(" ")
    protocol = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return run(_PLUGBAY_COMPLETE="complete_bash", **protocol, **env)


@pytest.mark.parametrize("line", GROUPS)
def test_ids_of_the_control_plane_are_completed(line: str, run: Run, world: World) -> None:
    env = {"PLUGBAY_SERVER": world.url, "PLUGBAY_TOKEN": world.tokens["admin"] or ""}
    id = world.ids[GROUPS[line]]
    done = complete(run, f"{line} {id[:2]}", **env)
    assert (done.code, done.err) == (0, "") and id in done.out.splitlines()
    assert complete(run, f"{line} {id[:2]}", **env | {"PLUGBAY_TOKEN": "wrong"}) == (0, "\n", "")


def test_every_source_is_a_list_of_the_api() -> None:
    for source in (*IDS.values(), *OWN_IDS.values()):
        path = id_list(source).path
        assert routes()[f"GET {path}"].paged, path


def test_plugins_of_the_running_server_are_completed_by_every_shell(
    run: Run, make_plugin: MakePlugin, cwd: Path, tmp_path: Path
) -> None:
    make_plugin("echo")
    make_plugin("other")
    with served(cwd, "plugins") as server:
        there = f"--server {server.facts['url']} --token-file {server.facts['token_file']}"
        both = ["example.echo", "example.other"]
        for command in ("logs", "start", "stop", "restart", "reload", "grant", "revoke"):
            assert complete(run, f"{command} {there} example.").out.split() == both, command
        assert complete(run, f"stop {there} example.e").out.split() == ["example.echo"]
        named = {
            "PLUGBAY_SERVER": server.facts["url"],
            "PLUGBAY_TOKEN": Path(server.facts["token_file"]).read_text().strip(),
        }
        assert complete(run, "config show exam", **named).out.split() == both
        zsh = {"_PLUGBAY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"plugbay stop {there} example.e"}
        assert '"example.echo":"idle"' in run(**zsh).out
        assert _complete_in_bash(f"plugbay stop {there} example.o", cwd, environment(tmp_path)) == ["example.other"]
        assert server.end() == 0


def _complete_in_bash(line: str, cwd: Path, env: dict[str, str]) -> list[str]:
    """The words that a real bash would offer."""
    plugbay = shlex.quote(str(Path(sys.executable).with_name("plugbay")))
    script = f"""
    source /dev/stdin <<< "$(_PLUGBAY_COMPLETE=source_bash {plugbay})"
    COMP_WORDS=({line}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
    _plugbay_completion {plugbay}
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def test_completion_is_silent_without_a_server_and_with_one_that_does_not_answer(run: Run) -> None:
    assert complete(run, "stop exam") == (0, "\n", "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {"PLUGBAY_SERVER": f"http://127.0.0.1:{silent.getsockname()[1]}", "PLUGBAY_TOKEN": "t"}
        assert complete(run, "stop exam", **env) == (0, "\n", "")
        asked, _ = silent.accept()
        asked.close()


def test_only_words_that_no_shell_interprets_are_offered() -> None:
    hostile = ["a$(id)", "a`id`", "a b", "a\n", "a\\", "a'", 'a"', "a;id", "a*", "", None, 7, "a" * 300]
    assert offer([(name, "") for name in hostile], "") == []
    assert offer([("acme/tea_1.0+x@y-z", "Tea \\$(id) `id` [red]'x'")], "acme") == [
        ("acme/tea_1.0+x@y-z", "Tea id id red x")
    ]
    assert len(offer([(f"n{number}", None) for number in range(500)], "n")) == MOST
    assert offer([("ab", "x"), ("b", "y")], "a") == [("ab", "x")]


@pytest.mark.parametrize(
    ("line", "at", "word"),
    [("plugbay", 1, ""), ("plugbay run", 1, ""), ("plugbay run x", 2, "run"), ("plugbay binding show b", 3, "binding")],
)
def test_the_command_counts_once_its_word_has_ended(line: str, at: int, word: str) -> None:
    bash = {"_PLUGBAY_COMPLETE": "complete_bash", "COMP_WORDS": line.replace(" ", "\n"), "COMP_CWORD": str(at)}
    assert command_word(bash) == word
    zsh = {"_PLUGBAY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    assert command_word(zsh) == word
    assert command_word({**os.environ, "COMP_WORDS": line, "COMP_CWORD": "3"}) == ""
