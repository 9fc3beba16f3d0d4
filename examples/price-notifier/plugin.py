"""Watches a file of prices in the project, and notifies the host when a price crosses a limit.

A thread reads the file and sends notifications: `changed` for a new price, `crossed` for a price that passed a limit.
With a signing key among the secrets each notification is signed, so readers of the bus can verify its origin; the key
itself is never sent.
"""

import hashlib
import hmac
import json
import os
import threading

from plugbay.sdk import Plugin, ToolError

SMALLEST_PAUSE = 0.05
"""Seconds between two looks at the file, however low it is set."""

LARGEST_FILE = 1_000_000
"""Bytes of the file that are read: it is a list of prices."""

CONFIG = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "pattern": "^project:", "default": "project:prices.json"},
        "seconds": {"type": "number", "minimum": 0.05, "maximum": 3600, "default": 1.0},
    },
    "additionalProperties": False,
}
SECRETS = {
    "type": "object",
    "properties": {"signing_key": {"type": "string", "minLength": 8, "description": "Signs every notification."}},
    "additionalProperties": False,
}
WATCH = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "minLength": 1, "maxLength": 200},
        "above": {"type": "number"},
        "below": {"type": "number"},
    },
    "required": ["item"],
    "anyOf": [{"required": ["above"]}, {"required": ["below"]}],
    "additionalProperties": False,
    "examples": [{"item": "tea", "above": 5}],
}

plugin = Plugin(
    "price-notifier",
    version="1.0.0",
    description="Tells when a price in a file of the project changes or crosses a line.",
    capabilities=["net:[]"],
    config_schema=CONFIG,
    secrets_schema=SECRETS,
)
plugin.notifies("changed", "crossed")
plugin.knob(
    "file",
    type="path",
    label="File of prices",
    description="JSON, an object of numbers; below the project's root.",
    binds_to="config.file",
    default="project:prices.json",
    prefixes=["project:"],
)
plugin.knob(
    "seconds",
    type="range",
    label="Seconds between looks",
    binds_to="config.seconds",
    default=1.0,
    min=0.05,
    max=60,
    step=0.05,
)


class Board:
    """The last known prices, and the limits to report."""

    def __init__(self) -> None:
        self.prices: dict[str, float] = {}
        self.lines: dict[str, dict[str, float]] = {}
        self.lock = threading.Lock()
        self.leaving = threading.Event()
        self.seen = False

    def look(self, ctx) -> list[dict]:
        """Read the file, store the prices, report changes; the first read reports nothing."""
        with self.lock:
            before, self.prices = self.prices, read(path_of(ctx.config.get("file", "project:prices.json")))
            first, self.seen = not self.seen, True
            if first:
                return []
            changes = [
                {"item": item, "price": price, "before": before.get(item)}
                for item, price in self.prices.items()
                if price != before.get(item)
            ]
            for change in changes:
                ctx.events.publish("changed", signed(change, ctx))
                self.compare(change, ctx)
            return changes

    def compare(self, change: dict, ctx) -> None:
        price, before = change["price"], change["before"]
        for side, limit in self.lines.get(change["item"], {}).items():
            if beyond(side, limit, price) and (before is None or not beyond(side, limit, before)):
                ctx.events.publish("crossed", signed({**change, side: limit}, ctx))


def beyond(side: str, limit: float, price: float) -> bool:
    return price > limit if side == "above" else price < limit


board = Board()


@plugin.tool(description="Tell when a price rises above a line, or falls below one.", input_schema=WATCH)
def watch(item: str, ctx, above: float | None = None, below: float | None = None) -> dict:
    lines = {side: limit for side, limit in (("above", above), ("below", below)) if limit is not None}
    if not lines:
        raise ToolError("say above or below which price", code="invalid_input")
    with board.lock:
        board.lines[item] = lines
        return {"item": item, **lines, "price": board.prices.get(item)}


@plugin.method("prices.refresh")
def refresh(ctx) -> dict:
    """Look now, without waiting for the next time."""
    changes = board.look(ctx)
    return {"prices": board.prices, "changed": len(changes), "signed": bool(ctx.secrets.get("signing_key"))}


@plugin.on_ready
def start(ctx) -> None:
    threading.Thread(target=keep_looking, args=(ctx,), daemon=True).start()


@plugin.on_shutdown
def stop() -> None:
    board.leaving.set()


def keep_looking(ctx) -> None:
    pause = max(float(ctx.config.get("seconds", 1.0)), SMALLEST_PAUSE)
    while not board.leaving.is_set():
        try:
            board.look(ctx)
        except ToolError as error:
            ctx.log(error)
        board.leaving.wait(pause)


def signed(payload: dict, ctx) -> dict:
    key = ctx.secrets.get("signing_key")
    if not key:
        return payload
    body = json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
    return {**payload, "signature": hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}


def path_of(name: str) -> str:
    """`project:` is the project's root; nothing outside of it is read."""
    root = os.path.realpath(os.environ.get("KAGED_PROJECT_ROOT") or ".")
    path = os.path.realpath(os.path.join(root, name.removeprefix("project:")))
    if os.path.commonpath([root, path]) != root:
        raise ToolError(f"{name} is outside the project", code="invalid_input")
    return path


def read(path: str) -> dict[str, float]:
    """The numbers in the file; a file that is not there yet has none."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(LARGEST_FILE))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot read the prices: {error}", code="unreadable") from None
    numbers = found.items() if isinstance(found, dict) else ()
    return {item: price for item, price in numbers if isinstance(price, int | float) and not isinstance(price, bool)}


if __name__ == "__main__":
    plugin.run()
