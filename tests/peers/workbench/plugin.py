"""A plugin for clients to try everything on: it answers, fails, counts, waits to be cancelled, and answers at length.

Prints as it goes, because plugins do.
"""

from __future__ import annotations

from plugbay.sdk import Plugin

plugin = Plugin("workbench", version="1.0.0", name="Workbench", description="Something to try clients on.")

cancelled = 0


@plugin.tool(effect="read_only")
def shout(text: str) -> dict[str, str]:
    """Say it louder."""
    print("this goes to stdout, where a plugin's author would look for it")
    return {"shouted": text.upper()}


@plugin.tool()
def fail(text: str) -> None:
    """Fail, saying why."""
    raise RuntimeError(text)


@plugin.tool(effect="read_only")
def count(to: int, ctx) -> int:  # type: ignore[no-untyped-def]
    """Count up, saying each number."""
    for number in range(1, to + 1):
        ctx.progress(f"number {number}")
    return to


@plugin.tool(timeout=60)
def wait(ctx) -> None:  # type: ignore[no-untyped-def]
    """Wait until nobody wants the answer any more."""
    global cancelled
    ctx.progress("waiting")
    try:
        while True:
            ctx.sleep(0.01)
    finally:
        cancelled += 1


@plugin.tool(effect="read_only")
def waited() -> str:
    """How often a wait was ended."""
    return str(cancelled)


@plugin.tool(effect="read_only")
def large(size: int) -> str:
    """A long text."""
    return "x" * size


if __name__ == "__main__":
    plugin.run()
