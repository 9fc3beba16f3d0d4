"""Completion of ids, through the protocol of the shells, against a real server."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from plugbay.cli.completion import MOST, command_word, join_bash_words, offer
from plugbay.cli.gateway.commands import id_list, routes
from plugbay.cli.gateway.resources import IDS, OWN_IDS
from tests.cli.conftest import Done, MakePlugin, Run, environment
from tests.cli.gateway.test_commands import world
from tests.server.test_server import served
from tests.support.patience import PATIENCE
from tests.support.tiers import few
from tests.support.worlds import World

__all__ = ["world"]

GROUPS = {
    "project show org_1": "project_id",
    "package show": "package",
    "binding update": "binding_id",
    "session create --org org_1 --project": "project_id",
    "org show": "org_id",
    "key revoke": "key_id",
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
    "harness create": "binding_id",
}


def complete(run: Run, line: str, **env: str) -> Done:
    """The answer to bash for a line whose last word is typed, or to be typed after a space."""
    words = f"plugbay {line}".split(" ")
    protocol = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return run(_PLUGBAY_COMPLETE="complete_bash", **protocol, **env)


@pytest.mark.parametrize("line", few(GROUPS, 4))
def test_ids_of_the_control_plane_are_completed(line: str, run: Run, world: World) -> None:
    env = {"PLUGBAY_SERVER": world.url, "PLUGBAY_TOKEN": world.tokens["admin"] or ""}
    id = world.ids[GROUPS[line]]
    done = complete(run, f"{line} {id[:2]}", **env)
    assert (done.code, done.err) == (0, "") and id in done.out.splitlines()


def test_a_wrong_token_is_silent(run: Run, world: World) -> None:
    done = complete(run, "org show org", PLUGBAY_SERVER=world.url, PLUGBAY_TOKEN="wrong")
    assert done == (0, "\n", "")


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
        for command in ("logs", "stop", "grant"):
            assert complete(run, f"{command} {there} example.").out.split() == both, command
        assert complete(run, f"stop {there} example.e").out.split() == ["example.echo"]
        named = {
            "PLUGBAY_SERVER": server.facts["url"],
            "PLUGBAY_TOKEN": Path(server.facts["token_file"]).read_text().strip(),
        }
        assert complete(run, "config show exam", **named).out.split() == both
        zsh = {"_PLUGBAY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"plugbay stop {there} example.e"}
        assert '"example.echo":"idle"' in run(**zsh).out
        _complete_in_bash(f"plugbay stop {there} example.o", "example.other", cwd, environment(tmp_path))
        assert server.end() == 0


def _complete_in_bash(line: str, wanted: str, cwd: Path, env: dict[str, str]) -> None:
    """Type a line and a tab into a real bash, until the wanted word is there."""
    plugbay = Path(sys.executable).with_name("plugbay")
    (cwd / "bashrc").write_text(f"PATH={plugbay.parent}:$PATH\nPS1='ready> '\n")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 1000, 0, 0))
    bash = subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", cwd / "bashrc", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**env, "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        _read_until(ours, "ready> ")
        os.write(ours, b'eval "$(_PLUGBAY_COMPLETE=source_bash plugbay)"; echo is""set\n')
        _read_until(ours, "isset")
        os.write(ours, f"{line}\t".encode())
        _read_until(ours, wanted)
    finally:
        bash.kill()
        bash.wait(PATIENCE)
        os.close(ours)


def _read_until(terminal: int, wanted: str) -> None:
    shown = b""
    while wanted.encode() not in shown:
        assert select.select([terminal], [], [], PATIENCE)[0], shown
        shown += os.read(terminal, 65536)


@pytest.mark.parametrize(
    ("split", "at", "joined", "then"),
    [
        ("plugbay stop --server http : //127.0.0.1 : 8787 ex", 8, "plugbay stop --server http://127.0.0.1:8787 ex", 4),
        ("plugbay org show --server = 127.0.0.1 : 1 te", 8, "plugbay org show --server=127.0.0.1:1 te", 4),
        ("plugbay session create --org = te", 5, "plugbay session create --org=te", 3),
        ("plugbay stop ex", 2, "plugbay stop ex", 2),
    ],
)
def test_words_that_bash_splits_are_joined(split: str, at: int, joined: str, then: int) -> None:
    environ = {"COMP_WORDS": split.replace(" ", "\n"), "COMP_CWORD": str(at)}
    join_bash_words(environ)
    assert environ == {"COMP_WORDS": joined.replace(" ", "\n"), "COMP_CWORD": str(then)}


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
