"""The client of a running server: finds it, sends requests, maps errors."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli import remote
from plugbay.cli.exit_codes import Exit
from plugbay.cli.remote import NoServer, RemoteRefused, ServerClient, SeveralServers, is_path, plugin_path
from plugbay.server.occupancy import RunningServer, announce


class Handler(BaseHTTPRequestHandler):
    """Answers as a server would, by path."""

    def do_GET(self) -> None:
        ASKED.append((self.path, self.headers["authorization"]))
        status, kind, body = ANSWERS[self.path.partition("?")[0]]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - named by the standard library

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


ASKED: list[tuple[str, str]] = []
REFUSAL = json.dumps({"error": {"code": "plugin.not_started", "message": "it crashed"}}).encode()
ANSWERS = {
    "/ok": (200, "application/json", b'{"a": 1}'),
    "/odd": (200, "text/html", b"<html>"),
    "/refused": (409, "application/json", REFUSAL),
    "/missing": (404, "text/html", b"<html>"),
    "/events": (200, "text/event-stream", b': here\n\nevent: one\ndata: {"n":1}\n\nid: 2\nevent: two\ndata: 2\n\n'),
}


@contextmanager
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_a_question_carries_the_key_and_its_answer_is_read() -> None:
    ASKED.clear()
    with server() as url:
        there = ServerClient(url, "pb_sk_1")
        assert there.get("/ok", tail=5, none=None) == {"a": 1}
        assert there.post("/ok", {"b": 2}) == {"a": 1}
        assert list(there.events("GET", "/events")) == [("one", {"n": 1}), ("two", 2)]
    assert ASKED[0] == ("/ok?tail=5", "Bearer pb_sk_1")


def test_a_refusal_has_its_reason_and_its_exit_status() -> None:
    with server() as url:
        there = ServerClient(url, "k")
        with pytest.raises(RemoteRefused, match=f"the server {url} refused: it crashed") as refused:
            there.post("/refused")
        assert refused.value.status == Exit.LAUNCH
        with pytest.raises(RemoteRefused) as missing:
            there.get("/missing")
        assert missing.value.status == Exit.NOT_FOUND
        with pytest.raises(NoServer, match="an invalid response"):
            there.get("/odd")


def test_a_server_that_is_gone_is_reported_as_such() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with pytest.raises(NoServer, match="does not respond"):
            ServerClient(f"http://127.0.0.1:{taken.getsockname()[1]}", "k").get("/ok")
    with pytest.raises(NoServer, match="not the URL"):
        ServerClient("ftp://host", "k")


def test_the_server_that_runs_here_is_found_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "directories", lambda: {"state": tmp_path})
    for name in (remote.SERVER_VARIABLE, remote.TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoServer, match="no plugbay server runs on this machine") as nobody:
        remote.find()
    assert "--server URL" in nobody.value.hint
    token = tmp_path / "token"
    token.write_text("pb_sk_1\n")
    with announce(tmp_path, RunningServer("http://127.0.0.1:1", 1, str(token), "/data")):
        assert remote.find().url == "http://127.0.0.1:1"
        token.unlink()
        with pytest.raises(NoServer, match="No such file"):
            remote.find()


def test_of_several_servers_the_one_of_this_folder_is_asked_or_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "directories", lambda: {"state": tmp_path})
    for name in (remote.SERVER_VARIABLE, remote.TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name in ("shop", "bank", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "token").write_text("pb_sk_1\n")
    shop, bank = (
        RunningServer(f"http://127.0.0.1:{number}", pid, str(tmp_path / "token"), "/data", str(tmp_path / name))
        for number, pid, name in ((1, os.getpid(), "shop"), (2, os.getppid(), "bank"))
    )
    with announce(tmp_path, shop):
        monkeypatch.chdir(tmp_path / "home")
        assert remote.find().url == shop.url, "there is no other"
        assert f"using the server {shop.url}, started in" in " ".join(capsys.readouterr().err.split())
        assert remote.find(quiet=True).url == shop.url and capsys.readouterr().err == ""
        with announce(tmp_path, bank):
            with pytest.raises(SeveralServers, match="none of them was started in this folder") as several:
                remote.find()
            assert several.value.status == Exit.USAGE
            for server in (shop, bank):
                assert f"--server {server.url} (started in {server.folder})" in several.value.failure.detail["hint"]
                assert remote.find(server.url).url == server.url, "with the key that it keeps"
                assert capsys.readouterr().err == "", "an option names it"
                monkeypatch.chdir(server.folder)
                assert remote.find().url == server.url
                assert capsys.readouterr().err == f"using the server {server.url}\n"
            monkeypatch.setenv(remote.SERVER_VARIABLE, shop.url)
            assert remote.find().url == shop.url
            assert capsys.readouterr().err == f"using the server {shop.url}, named by PLUGBAY_SERVER\n"
            assert remote.find(quiet=True).url == shop.url
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("word", "expected"),
    [("./x", True), ("../x", True), ("/x", True), ("~/x", True), ("x/", True), ("a/b/c", True), ("x", False)],
)
def test_a_word_that_can_only_be_a_path_is_known(word: str, expected: bool) -> None:
    assert is_path(word) is expected
    assert not is_path("acme/devkit"), "an id of a package"


def test_another_server_needs_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(remote.TOKEN_VARIABLE, raising=False)
    with pytest.raises(NoServer, match="needs a token") as keyless:
        remote.find("http://other.example")
    assert "--token-file" in keyless.value.hint
    monkeypatch.setenv(remote.TOKEN_VARIABLE, "k")
    assert remote.find("http://other.example/base/").url == "http://other.example/base"


def test_an_id_with_odd_letters_is_one_path() -> None:
    assert plugin_path("acme/dev kit", ":stop") == "/api/v1/plugins/acme/dev%20kit:stop"
