"""A language model provider without a model: it answers with the line that shares most words with the question.

It has the shape of a real provider: chunks are yielded as they arrive, for streaming and for whole results.
"""

from collections.abc import Iterator
from typing import Any

from plugbay.sdk import ModelNotFound, Plugin

plugin = Plugin("toy_model", version="1.0.0", name="Toy model")


@plugin.llm_provider("toy")
def chat(request: dict[str, Any], model: str) -> Iterator[str | dict[str, Any]]:
    """The best line of the system prompt and of earlier messages, word by word."""
    if model != "quote":
        raise ModelNotFound(f"there is no model {model!r}; try 'quote'")
    *before, question = [request.get("system_prompt") or "", *(said["content"] for said in request["messages"])]
    known = [line for text in before for line in text.splitlines()[-50:]]
    answer = max(known, key=lambda line: len(words(line) & words(question)), default="") or "I do not know."
    pieces = answer.split(" ")
    yield pieces[0]
    yield from (f" {piece}" for piece in pieces[1:])
    spent = sum(len(text.split()) for text in (*before, question))
    yield {"type": "usage", "usage": {"prompt_tokens": spent, "completion_tokens": len(pieces)}}


def words(text: str) -> set[str]:
    return {word.strip(".,:;?!").lower().removesuffix("s") for word in text.split()}


if __name__ == "__main__":
    plugin.run()
