"""A plugin with a bit of everything, as an author writes one: for tests of what authors test with."""

from __future__ import annotations

from typing import Any

from plugbay.sdk import HarnessResult, Plugin, RecipientInvalid, ToolError, inject, transform


def everything() -> tuple[Plugin, list[Any]]:
    """A fresh one, and where its handlers write down what they noticed."""
    plugin = Plugin(
        "pantry",
        version="1.2.3",
        description="Knows what is in the pantry.",
        capabilities=[
            *("memory.recall", "llm.complete"),
            *("kaged:storage:read", "kaged:storage:write"),
            *("event_bus", "network=shop.example", "read_paths=/srv/recipes"),
            "filesystem=scratch",
        ],
        config_schema={"type": "object", "properties": {"low": {"type": "integer", "minimum": 1}}},
        secrets_schema={"type": "object", "properties": {"shop_token": {"type": "string", "minLength": 3}}},
    )
    plugin.knob("low", type="int_range", label="Running low below", binds_to="config.low", default=2, min=1, max=20)
    plugin.notifies("low")
    seen: list[Any] = []
    _tools(plugin)
    _services(plugin)
    _moments(plugin, seen)
    _exports(plugin, seen)
    _surfaces(plugin, seen)
    return plugin, seen


def _tools(plugin: Plugin) -> None:
    @plugin.tool()
    def put(what: str, amount: int = 1) -> dict[str, Any]:
        """Put something in."""
        if amount < 0:
            raise ToolError("less than nothing", code="invalid_input")
        return {"what": what, "amount": amount}

    @plugin.tool()
    async def count(items: list[str]) -> int:
        """How many there are."""
        return len(items)

    @plugin.tool()
    def bug() -> None:
        """Fail as nobody meant to."""
        raise RuntimeError("a bug")

    @plugin.tool(timeout=30)
    def wait(ctx: Any) -> str:
        """Wait until nobody wants the answer."""
        ctx.progress("waiting")
        ctx.sleep(20)
        return "done"

    @plugin.method("pantry.stock")
    def stock() -> list[str]:
        return ["tea"]


def _services(plugin: Plugin) -> None:
    @plugin.tool()
    def remember(query: str, ctx: Any) -> list[str]:
        """What is remembered."""
        return [entry["content"] for entry in ctx.memory.recall("ada", query)]

    @plugin.tool()
    async def say(ctx: Any) -> str:
        """What a model says."""
        pieces = [piece async for piece in ctx.llm.stream("toy", "quote", [{"role": "user", "content": "tea?"}])]
        return "|".join(pieces)

    @plugin.tool()
    def keep(key: str, value: Any, ctx: Any) -> list[str]:
        """Keep something."""
        ctx.storage.set(key, value)
        ctx.log("kept", key)
        return list(ctx.storage.keys())

    @plugin.tool()
    def tell(topic: str, ctx: Any) -> None:
        """Publish something."""
        ctx.events.publish(topic, {"what": "tea"})

    @plugin.tool()
    def settings(ctx: Any) -> dict[str, Any]:
        """What is set."""
        return {"config": dict(ctx.config), "secrets": sorted(ctx.secrets)}

    @plugin.tool()
    def page(url: str, ctx: Any) -> Any:
        """What a server says."""
        return ctx.http.fetch(url).json()

    @plugin.tool()
    async def recipe(path: str, ctx: Any) -> list[Any]:
        """What a file says, and what lies beside it."""
        names = [entry.name for entry in await ctx.files.list("/srv/recipes")]
        return [(await ctx.files.read(path)).decode(), names]

    @plugin.tool()
    def switch(ctx: Any) -> str:
        """Have somebody else do something."""
        ctx.log.warn("switching", lamp=1)
        return bytes(ctx.actions.invoke("lamp.switch", b"on")).decode()


def _moments(plugin: Plugin, seen: list[Any]) -> None:
    @plugin.on_ready
    def ready() -> None:
        seen.append("ready")

    @plugin.on_shutdown
    def over() -> None:
        seen.append("over")

    @plugin.hook("before_message")
    def polite(event: dict[str, Any]) -> Any:
        return transform(event["body"] + " please")

    @plugin.hook("on_session_start")
    def welcome(event: dict[str, Any], ctx: Any) -> Any:
        return inject(f"welcome to {ctx.session_id}")

    @plugin.hook("run.completed")
    def completed(event: dict[str, Any]) -> None:
        seen.append(event)

    @plugin.compactor
    def shorten(messages: list[Any]) -> Any:
        return messages[-1:] if len(messages) > 2 else None

    @plugin.on_event("plugin.outbound.>")
    def heard(event: Any) -> None:
        if event.payload == "bad":
            raise ValueError("a bad event")
        seen.append(event.payload)

    @plugin.on_snapshot("usage.today")
    async def usage(snapshot: Any) -> None:
        seen.append(snapshot.json())


def _exports(plugin: Plugin, seen: list[Any]) -> None:
    @plugin.harness("tidy", capabilities=["filesystem=scratch"])
    def tidy(run: Any, ctx: Any) -> HarnessResult:
        """Tidy up."""
        done = [*(run.checkpoint or []), run.text]
        ctx.checkpoint(done)
        (ctx.scratch / "list.txt").write_text("tea")
        return HarnessResult("tidy", artifacts=["list.txt"])

    @plugin.channel("note")
    class Notes:
        def start(self, instance: str | None) -> None:
            seen.append(("start", instance))

        def stop(self) -> None:
            seen.append("stop")

        def send(self, message: dict[str, Any]) -> str:
            if message["to"] != "ada":
                raise RecipientInvalid(message["to"], "only Ada is here")
            return "message-1"

    @plugin.llm_provider("parrot")
    def repeat(request: dict[str, Any], model: str) -> Any:
        yield from [request["messages"][-1]["content"], "!"]

    @plugin.vector_backend("shelf")
    class Shelf:
        def upsert(self, collection: str, records: list[Any]) -> int:
            return len(records)

        def search(self, collection: str, query: dict[str, Any]) -> list[Any]:
            return [{"id": "a", "score": 1.0, "content": collection, "metadata": {}}][: query["limit"]]

        def delete(self, collection: str, ids: list[str]) -> int:
            return len(ids)


def _surfaces(plugin: Plugin, seen: list[Any]) -> None:
    lit = [False]

    @plugin.screen("lamp")
    def draw(canvas: Any) -> None:
        canvas.text(0, 0, "lit ☕" if lit[0] else "dark", bold=lit[0])

    @plugin.on_key("lamp", "space")
    def switch(key: Any) -> None:
        lit[0] = not lit[0]

    @plugin.on_key("lamp")
    def pressed(key: Any) -> None:
        seen.append(key.name)

    @plugin.on_mouse("lamp")
    def moved(mouse: Any) -> None:
        seen.append((mouse.kind, mouse.button, mouse.x, mouse.y))

    @plugin.cli("lamp")
    def command(argv: list[str]) -> int:
        print("lit" if lit[0] else "dark", *argv)
        return 0 if lit[0] else 1

    @plugin.on_action("off")
    def off(payload: Any) -> None:
        seen.append(payload)

    @plugin.action("lamp.ask")
    def ask(data: bytes) -> bytes:
        return data.upper()
