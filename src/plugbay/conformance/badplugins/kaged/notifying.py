"""Sends notifications as KIND says: declared ones are accepted, up to a rate; the others are recorded as noise."""

from __future__ import annotations

from child import KIND, Message, answer, greet, say, serve

PARAMS = {"n": 1}


def tell(request: Message) -> None:
    if KIND == "declared":
        say(method="changed", params=PARAMS)
    if KIND == "undeclared":
        say(method="moved", params=PARAMS)
        say(method="plugin.bad.changed", params=PARAMS)
        say(method="kaged.storage.set", params={"key": "k", "value": 1})
    if KIND == "without_params":
        say(method="changed")
    if KIND == "flood":
        for number in range(300):
            say(method="changed", params={"n": number})
    answer(request)


if KIND == "before_greeting":
    say(method="changed", params=PARAMS)
greet()
serve(tell)
