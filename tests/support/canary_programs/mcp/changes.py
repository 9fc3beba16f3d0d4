"""How the canary is made to do otherwise than it should."""

from __future__ import annotations

import serving  # type: ignore[import-not-found]  # it lies beside this file
from serving import METHODS, Message, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def instead(method: str, change: Callable[[Message, Message], Message]) -> None:
    """Change what comes of a method: the function gets the parameters and the proper result."""
    proper = METHODS[method]
    METHODS[method] = lambda params: change(params, proper(params))


def result(method: str, **over: Any) -> None:
    """Lay something over what a method gives back; None takes it away."""
    instead(method, lambda params, proper: {k: v for k, v in {**proper, **over}.items() if v is not None})


def never_refuses(method: str, **given: Any) -> None:
    """Answer what should be refused with this."""
    proper = METHODS[method]

    def lenient(params: Message) -> Message:
        try:
            return proper(params)
        except Refusal:
            return given

    METHODS[method] = lenient


def before(does: Callable[[Message], None]) -> None:
    """Do something before a request is answered."""
    proper = serving.answer

    def answer(message: Message) -> None:
        does(message)
        proper(message)

    serving.answer = answer
