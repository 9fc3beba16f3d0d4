"""The runs of a world: a model that they ask, and what the database witnesses of them.

The model replies with numbers, one after the other, so that a reader notices what is missing; before that it calls the
tool if the input asks for it. A trigger in the database keeps each status that a run has had.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.openai_server import EVENTS, delta, events

MODEL, TOOL = "local/any", "s"

WORDS, PAUSE = 24, 0.04
"""Numbers in a reply, and seconds between them."""

ASKS_FOR_TOOL = "look first"
"""The input for which the model calls the tool."""

WITNESS = (
    "CREATE TABLE witnessed_runs (number bigserial PRIMARY KEY, chain text, run text, status text)",
    """
    CREATE FUNCTION witness_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.witnessed_runs (chain, run, status) VALUES (NEW.chain_id, NEW.id, NEW.status);
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER witness_run AFTER INSERT OR UPDATE OF status ON runs
    FOR EACH ROW EXECUTE FUNCTION witness_run()
    """,
)
"""Statements for the database. Who makes or ends a run locks its chain, so their numbers are in order."""


class Model:
    """A server that speaks OpenAI's format."""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Replies)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def settings(self) -> str:
        """For the `plugbay.toml` of each gateway."""
        url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return f'\n[llm.providers.local]\nkind = "openai"\nbase_url = "{url}"\n'


class _Replies(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            self.send_response(200)
            self.send_header("content-type", EVENTS)
            self.end_headers()
            for piece in _pieces(asked["messages"][-1]):
                self.wfile.write(piece)
        except OSError:
            self.close_connection = True  # the gateway is gone

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _pieces(last: dict[str, Any]) -> Iterator[bytes]:
    """The reply to a conversation with this last message."""
    if last["role"] == "user" and ASKS_FOR_TOOL in json.dumps(last["content"]):
        call = {"index": 0, "id": "c1", "function": {"name": TOOL, "arguments": "{}"}}
        yield events(delta(tool_calls=[call]), delta("tool_calls"))
        return
    for number in range(WORDS):
        yield b"data: " + json.dumps(delta(content=f"{number} ")).encode() + b"\n\n"
        time.sleep(PAUSE)
    yield events(delta("stop"))
