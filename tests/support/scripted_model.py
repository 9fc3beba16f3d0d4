"""A model that answers by a script, over real HTTP: the APIs of Anthropic (messages) and OpenAI (responses, chat)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Turn = str | Sequence[tuple[str, dict[str, Any]]]
"""A final text, or calls of tools with their arguments."""


@dataclass
class ScriptedModel:
    """The n-th request gets the n-th turn; the requests are kept."""

    turns: Sequence[Turn]
    address: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which every client of these vendors finds this model instead of theirs."""
        return {
            "ANTHROPIC_BASE_URL": self.address,
            "ANTHROPIC_API_KEY": "scripted",
            "OPENAI_BASE_URL": f"{self.address}/v1",
            "OPENAI_API_KEY": "scripted",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(body)
        turn = self.turns[len(self.requests) - 1]
        shape = {"/v1/messages": _message, "/v1/responses": _response, "/v1/chat/completions": _completion}[path]
        return shape(turn, f"{len(self.requests)}")

    def offered(self) -> list[str]:
        """The names of the tools in the first request."""
        tools = self.requests[0]["tools"]
        return [tool.get("name") or tool["function"]["name"] for tool in tools]

    def results(self) -> list[str]:
        """The texts of all results of tools in the last request."""
        last = self.requests[-1]
        return [text for item in last.get("input") or last["messages"] for text in _results(item)]


def _message(turn: Turn, number: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": turn}] if isinstance(turn, str) else []
    if not isinstance(turn, str):
        for at, (name, arguments) in enumerate(turn):
            content.append({"type": "tool_use", "id": f"toolu_{number}_{at}", "name": name, "input": arguments})
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": "end_turn" if isinstance(turn, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _response(turn: Turn, number: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if isinstance(turn, str):
        text = {"type": "output_text", "text": turn, "annotations": []}
        output.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]})
    else:
        for at, (name, arguments) in enumerate(turn):
            call = {"call_id": f"call_{number}_{at}", "name": name, "arguments": json.dumps(arguments)}
            output.append({"type": "function_call", "id": f"fc_{number}_{at}", **call})
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": "scripted",
        "output": [{"status": "completed", **item} for item in output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def _completion(turn: Turn, number: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
    if not isinstance(turn, str):
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(turn)
        ]
    finish = "stop" if isinstance(turn, str) else "tool_calls"
    return {
        "id": f"chatcmpl_{number}",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _results(item: dict[str, Any]) -> Iterator[str]:
    """The results of tools in one item of a conversation, in the shape of each API."""
    if item.get("type") == "function_call_output":
        yield _text(item["output"])
    elif item.get("role") == "tool":
        yield _text(item["content"])
    elif item.get("role") == "user" and isinstance(item["content"], list):
        yield from (_text(part["content"]) for part in item["content"] if part["type"] == "tool_result")


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


@contextmanager
def scripted_model(*turns: Turn) -> Iterator[ScriptedModel]:
    """Serve a model on a free port of the loopback interface."""
    model = ScriptedModel(turns)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, answer = 200, model.answer(self.path.partition("?")[0], body)
            except LookupError as error:
                status, answer = 400, {"error": {"message": f"not in the script: {error!r}"}}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        model.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
