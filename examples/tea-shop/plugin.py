"""One source, every contract: a shop whose tools are the same under rune, nexo, kaged, ainb and vai.

Annotations are the schemas: an input that does not fit is refused before a function runs, and one that fits arrives as
dataclasses, enums and dates.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

from plugbay.sdk import Field, Plugin, ToolError, ToolUnavailable

plugin = Plugin("tea-shop", version="1.0.0", description="Sells tea under every contract.")


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Item:
    """Something to buy.

    Attributes:
        name: What it is.
        price: Of one, in euros.
    """

    name: Annotated[str, Field(min_length=1)]
    price: Annotated[float, Field(ge=0)]
    count: Annotated[int, Field("How many of it.", ge=1, le=100)] = 1
    size: Size = Size.SMALL
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.size is Size.LARGE and self.name == "espresso":
            raise ValueError("there is no large espresso")


@dataclass
class Bill:
    """What it costs."""

    lines: list[str]
    total: float
    due: date
    kinds: set[str]


class Address(TypedDict, total=False):
    """Where it goes."""

    city: str
    street: str


@plugin.tool(effect="read_only")
def quote(items: Annotated[list[Item], Field(max_length=50)], ordered: date, express: bool = False) -> Bill:
    """Say what an order costs, and when it has to be paid.

    Args:
        items: What is ordered.
        ordered: The day of the order.
        express: Whether it is wanted today, which costs extra.
    """
    lines = [f"{item.count} x {item.size.value} {item.name}" for item in items]
    total = sum(item.price * item.count for item in items) + (4.5 if express else 0.0)
    return Bill(lines, round(total, 2), ordered + timedelta(days=14), {item.name for item in items})


@plugin.tool(effect="read_only")
async def deliver(address: Address, how: Literal["foot", "bike"] = "foot", tip: float | None = None) -> dict[str, Any]:
    """Say how an order gets there."""
    import asyncio  # here: nobody else waits 40 ms for it before the first answer

    await asyncio.sleep(0)
    return {"to": address.get("city", "the counter"), "how": how, "tip": tip}


@plugin.tool(effect="read_only", input_schema={"type": "object"})
def label(tea: str, best_before: date, grams: Annotated[int, Field(ge=1)] = 100) -> dict[str, str]:
    """Write a label. A schema that is given is what hosts are shown; the annotations still check and convert."""
    return {"text": f"{tea}, {grams} g, best before {best_before:%d %B %Y}"}


@plugin.tool(effect="read_only")
def names(text: str) -> dict[str, Any]:
    """Spell a text: what each of its characters is called."""
    return {"text": text, "names": [unicodedata.name(char, "unnamed") for char in text], "length": len(text)}


@plugin.tool(effect="read_only")
def leaves(count: Annotated[int, Field(ge=0, le=2_000_000)]) -> dict[str, str]:
    """A heap of tea leaves, as large as one likes: for whoever wants to see what a contract carries."""
    return {"heap": "🍃" * count}


@plugin.tool(effect="read_only", output_schema={"type": "string"})
def recite(lines: int = 3):
    """A poem, line by line: hosts that can show a text as it grows do."""
    for line in range(1, lines + 1):
        if line > 4:
            raise ToolError("nobody knows more than four lines", code="forgotten")
        yield f"{line}. tea\n"


@plugin.tool(effect="read_only")
def brew(kind: str, ctx) -> dict[str, Any]:
    """Make tea, unless something is in the way: every way in which a tool can fail."""
    ctx.progress(f"brewing {kind}", share=0.5)
    ctx.log(f"somebody wants {kind}")
    print("a print is harmless")
    match kind:
        case "coffee":
            raise ToolError("this is a tea shop", code="teapot")
        case "sold out":
            raise ToolUnavailable("come back tomorrow", retry_after_ms=1_000)
        case "secret":
            raise ToolError("there is no such tea", code="not_found")
        case "stone":
            raise ToolError("a stone is no tea", code="invalid_input")
        case "broken pot":
            return {"cups": 1 / 0}
        case "exit":
            raise SystemExit("closed for today")
        case "nothing":
            return {"cups": float("nan")}
        case "black hole":
            hole: dict[str, Any] = {}
            hole["inside"] = hole
            return hole
    return {"cups": 2, "kind": kind}


@plugin.tool(effect="read_only")
def sit(seconds: float, ctx) -> dict[str, Any]:
    """Stay for a while, or until the host has enough of it."""
    ctx.sleep(seconds)
    return {"sat": seconds}


@plugin.tool(effect="read_only", timeout=1)
def steep(seconds: float, ctx) -> dict[str, Any]:
    """Wait for the tea, and not longer than whoever ordered it: a plain function looks, or sleeps with `ctx`."""
    ctx.sleep(seconds)
    return {"ready": True, "in time": ctx.remaining is not None}


@plugin.tool(effect="read_only", timeout=1)
async def steep_later(seconds: float) -> dict[str, Any]:
    """The same for whoever awaits: an async function is cancelled by itself."""
    import asyncio

    await asyncio.sleep(seconds)
    return {"ready": True}


@plugin.tool(effect="read_only")
def ask_memory(what: str, ctx) -> dict[str, Any]:
    """Ask the host for what only some have; where there is no such service, the answer says which hosts do."""
    return {"found": ctx.memory.recall("guest", what)}


if __name__ == "__main__":
    plugin.run()
