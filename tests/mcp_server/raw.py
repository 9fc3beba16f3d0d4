"""An MCP client without an SDK: starts a server process, writes and reads lines, of either era."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.patience import PATIENCE

OURS = "io.modelcontextprotocol/"

ERA_ONLY = ("resultType", "ttlMs", "cacheScope")

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Answers a request of the server: (method, params) → result."""


def plain(result: Any) -> Any:
    """A result without the fields that depend on revision or server."""
    if not isinstance(result, dict):
        return result
    kept = {key: value for key, value in result.items() if key not in ERA_ONLY}
    meta = {key: value for key, value in kept.pop("_meta", {}).items() if not key.startswith(OURS)}
    return {**kept, **({"_meta": meta} if meta else {})}


class Client:
    """One server process and its client, in one revision of MCP."""

    def __init__(
        self,
        command: Sequence[str],
        era: str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ask: Ask | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.era = era
        self.notifications: list[dict[str, Any]] = []
        self.junk: list[str] = []
        """Lines that were not messages."""
        self._ask = ask
        self._capabilities = {"elicitation": {}} if ask and capabilities is None else dict(capabilities or {})
        self._number = 0
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._heard = threading.Condition()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd, text=True
        )
        self.stderr: list[str] = []
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._drain, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> int:
        """Close stdin and wait; returns the exit status."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for thread in self._threads:
            thread.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    # Sending.

    def write(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def meta(self, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        said = dict(own or {})
        if self.era == "modern":
            said |= {
                f"{OURS}protocolVersion": "2026-07-28",
                f"{OURS}clientInfo": {"name": "raw", "version": "1"},
                f"{OURS}clientCapabilities": self._capabilities,
            }
        return said

    def begin(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> int:
        """Send a request without waiting; returns its id."""
        self._number += 1
        self._answers[self._number] = queue.Queue()
        said = self.meta(meta)
        self.write(
            {"id": self._number, "method": method, "params": {**(params or {}), **({"_meta": said} if said else {})}}
        )
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the whole response."""
        return self._answers[number].get(timeout=PATIENCE)

    def is_answered(self, number: int) -> bool:
        return not self._answers[number].empty()

    def ask(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> Any:
        """Send a request and return its result, or `{"error": …}`; answers questions of the server meanwhile."""
        answer = self.answer(self.begin(method, params, **meta))
        while answer.get("result", {}).get("resultType") == "input_required":
            assert self._ask
            result = answer["result"]
            said = {
                key: self._ask(wanted["method"], wanted["params"]) for key, wanted in result["inputRequests"].items()
            }
            again = {**(params or {}), "inputResponses": said, "requestState": result["requestState"]}
            answer = self.answer(self.begin(method, again, **meta))
        return plain(answer["result"]) if "result" in answer else {"error": answer["error"]}

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **meta: Any) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **meta)

    def open(self) -> Any:
        """Do the handshake, or `server/discover`; returns the server's description."""
        if self.era == "modern":
            return self.ask("server/discover")
        params = {"protocolVersion": "2025-11-25", "capabilities": self._capabilities, "clientInfo": {"name": "raw"}}
        hello = self.ask("initialize", params)
        self.write({"method": "notifications/initialized"})
        return hello

    def everything(self, method: str, key: str) -> list[Any]:
        """All pages of a list."""
        found, cursor = [], None
        while True:
            page = self.ask(method, {} if cursor is None else {"cursor": cursor})
            found += page[key]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    # Receiving.

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self.junk.append(line)
                continue
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._answers[message["id"]].put(message)
        elif "id" in message:
            assert self._ask and self.era == "handshake", message
            self.write({"id": message["id"], "result": self._ask(message["method"], message.get("params", {}))})
        else:
            with self._heard:
                self.notifications.append(message)
                self._heard.notify_all()

    def _drain(self) -> None:
        assert self.process.stderr
        self.stderr.extend(self.process.stderr)

    def heard(self, method: str, **params: Any) -> dict[str, Any]:
        """Wait for the first notification with this method and parameters, and remove it."""

        def found() -> dict[str, Any] | None:
            for note in self.notifications:
                said = note.get("params", {})
                if note["method"] == method and all(said.get(key) == value for key, value in params.items()):
                    return note
            return None

        with self._heard:
            assert self._heard.wait_for(lambda: found() is not None, PATIENCE), (method, params, self.notifications)
            note = found()
            assert note is not None
            self.notifications.remove(note)
            return note
