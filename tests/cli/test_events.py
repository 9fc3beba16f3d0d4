"""`plugbay publish` and `plugbay events`, with a real server and with a host of the command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Run, environment
from tests.server.test_server import served
from tests.support.commands import Command
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

SESSION = "8c7d1f0e-3b5a-4b1e-9a53-0d0c2f6f7a11"

LISTENER = """
def broker_event(m):
    event = m["params"]["event"]
    publish("plugin.inbound.chat", seen=event["payload"], session=event.get("session_id"), source=event["source"])
"""
"""A plugin that publishes each event that it gets."""


def write_listener(folder: Path) -> None:
    write_nexo_plugin(folder, "p", LISTENER, channels=["chat"])


class Watcher:
    """`plugbay events` in a process of its own."""

    def __init__(self, process: Command, out: int, err: int) -> None:
        self.process = process
        self._out, self.err = open(out), open(err)  # noqa: SIM115 - closed in `watching`

    def line(self) -> str:
        return self._out.readline()

    def close(self) -> None:
        self._out.close()
        self.err.close()


@contextmanager
def watching(cwd: Path, *words: str) -> Iterator[Watcher]:
    """Start the command; go on when it watches."""
    (out, say), (err, tell) = os.pipe(), os.pipe()
    with open(os.devnull) as nothing:
        process = Command(["events", *words], [nothing.fileno(), say, tell], cwd, environment(cwd.parent))
    for stream in (say, tell):
        os.close(stream)
    watcher = Watcher(process, out, err)
    try:
        yield watcher
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
        watcher.close()


@requirement("host:events-publish", "host:events-watch", "host:which-host")
def test_an_event_reaches_the_plugins_of_the_server_and_the_watcher(run: Run, cwd: Path) -> None:
    write_listener(cwd / "plugins")
    with served(cwd, "plugins", "--grant-all") as server:
        url = server.facts["url"]
        there = ("--server", url, "--token-file", server.facts["token_file"])
        with watching(cwd, "plugin.inbound.*", "--count", "1", "--json", *there) as watcher:
            assert watcher.err.readline().startswith("note:  watching topics plugin.inbound.*"), (
                "only that it has begun"
            )
            done = run("publish", "plugin.outbound.chat", '{"id": 7}', "--session-id", SESSION, "--json", *there)
            assert done.code == 0, done.err
            assert done.json["asked"] == url and done.json["subscribers"] == ["p"]
            assert (done.json["source"], done.json["session_id"]) == ("operator", SESSION)
            seen = json.loads(watcher.line())
            assert seen["topic"] == "plugin.inbound.chat" and seen["source"] == "p"
            assert seen["payload"] == {"seen": {"id": 7}, "session": SESSION, "source": "operator"}
            assert watcher.process.wait(PATIENCE) == 0, "it ends after the wanted number"
        told = run("publish", "nothing.here", *there)
        assert (told.code, told.out) == (0, "")
        assert f"using the server {url}\n" in told.err and "subscribed: no plugin" in told.err
        assert server.end() == 0


@requirement("host:events-watch")
def test_ctrl_c_ends_a_watcher(cwd: Path) -> None:
    with served(cwd) as server:
        with watching(cwd, "--server", server.facts["url"], "--token-file", server.facts["token_file"]) as watcher:
            watcher.err.readline()
            os.kill(watcher.process.pid, signal.SIGINT)
            assert watcher.process.wait(PATIENCE) == 130
        assert server.end() == 0


@requirement("host:events-publish", "host:events-watch", "host:which-host")
def test_a_host_of_the_command_publishes_and_watches_without_a_server(run: Run, cwd: Path) -> None:
    write_listener(cwd / "plugins")
    done = run("publish", "plugin.outbound.chat", '{"id": 1}', "--plugins", "plugins", "--grant-all", "--json")
    assert done.code == 0, done.err
    assert done.json["asked"] == "plugins" and done.json["subscribers"] == ["p"]
    seen = run("events", "plugin.lifecycle.>", "--count", "1", "--plugins", "plugins", "--grant-all")
    assert seen.code == 0 and "plugin.lifecycle.p." in seen.out
    assert "using a host of this command for plugins\n" in seen.err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("publish", "a..b"), 2, "empty segment"),
        (("publish", "a.*"), 2, "wildcard"),
        (("publish", "a.b", "{"), 2, "the payload"),
        (("publish", "a.b", "--session-id", "s1"), 2, "not a UUID"),
        (("publish", "a.b", "--grant-all"), 2, "--plugins DIR"),
        (("events", "a..b"), 2, "empty segment"),
        (("publish", "a.b"), 4, "no plugbay server runs"),
        (("events",), 4, "--plugins DIR"),
    ],
)
def test_a_mistake_is_explained(run: Run, words: tuple[str, ...], status: int, text: str) -> None:
    done = run(*words)
    assert done.code == status and text in " ".join(done.err.split())
