"""`Surfaces`: what a plugin shows and hears beside its tools: screens, keys, commands, snapshots, actions.

    @plugin.screen("usage", min_size=(40, 10))
    def draw(canvas, ctx):
        canvas.text(0, 0, "hello", fg="yellow", bold=True)

    @plugin.on_key("usage", "r", "f5")
    def refresh(key, ctx): ...

Owns the declarations only: what a canvas or a key is, is loaded when a host asks for it. Handlers of one plugin run one
at a time, so they need no locks.
"""

from __future__ import annotations

from plugbay.sdk.declaring import declare, refuse_function
from plugbay.sdk.types.handlers import Handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.sdk.types.handlers import Function


class Screen(Handler):
    """Who draws a screen, and the smallest size it can be drawn in."""

    __slots__ = ("min_height", "min_width")

    def __init__(self, function: Callable[..., Any], min_size: tuple[int, int]) -> None:
        super().__init__(function)
        self.min_width, self.min_height = min_size


class Listener(Handler):
    """Who hears the keys or the mouse of a screen; without names, all of them."""

    __slots__ = ("names", "releases", "screen")

    def __init__(
        self, function: Callable[..., Any], screen: str, names: tuple[str, ...] = (), releases: bool = False
    ) -> None:
        super().__init__(function)
        self.screen = screen
        self.names = names
        self.releases = releases


class Command(Handler):
    """Who answers a command line or an action, and whether it may run beside other handlers."""

    __slots__ = ("concurrent",)

    def __init__(self, function: Callable[..., Any], concurrent: bool) -> None:
        super().__init__(function)
        self.concurrent = concurrent


class Surfaces:
    """Declarations for hosts with a screen, a command line and a store of snapshots."""

    def __init__(self, *, eager: bool, idle_seconds: int | None) -> None:
        self.eager = eager
        self.idle_seconds = idle_seconds
        self.screens: dict[str, Screen] = {}
        self.keys: list[Listener] = []
        self.mice: list[Listener] = []
        self.commands: dict[str, Handler] = {}
        self.clis: dict[str, Command] = {}
        self.actions: dict[str, Command] = {}
        self.snapshots: list[tuple[str | None, Handler]] = []
        self.latest: list[str] = []
        self.topics: list[str] = []

    def screen(self, name: str, *, min_size: tuple[int, int] = (1, 1)) -> Callable[[Function], Function]:
        """Draw a screen: `def draw(canvas, ctx)` paints cells on a `Canvas` as large as the host's.

        Where there is less room than `min_size` (columns, rows), a word about that is shown instead.
        """
        refuse_function("screen", name)

        def register(function: Function) -> Function:
            declare(self.screens, "screens", name, Screen(function, min_size))
            return function

        return register

    def on_key(self, screen: str, *names: str, releases: bool = False) -> Callable[[Function], Function]:
        """Hear the keys of a screen, or those with these names: `def key(key, ctx)`.

        Names are `a`, `A`, `space`, `enter`, `esc`, `page_up`, `f5`, with `ctrl+`, `alt+`, `shift+` or `super+` before
        them. That a key was let go is heard with `releases` only.
        """
        refuse_function("on_key", screen)

        def register(function: Function) -> Function:
            self.keys.append(Listener(function, screen, names, releases))
            return function

        return register

    def on_mouse(self, screen: str) -> Callable[[Function], Function]:
        """Hear what the mouse does on a screen: `def mouse(mouse, ctx)`."""
        refuse_function("on_mouse", screen)

        def register(function: Function) -> Function:
            self.mice.append(Listener(function, screen))
            return function

        return register

    def on_action(self, name: str) -> Callable[[Function], Function]:
        """Offer a command of the host's palette: `def command(payload, ctx)`; nobody waits for an answer."""
        refuse_function("on_action", name)

        def register(function: Function) -> Function:
            declare(self.commands, "commands", name, Handler(function))
            return function

        return register

    def cli(self, namespace: str, *, concurrent: bool = False) -> Callable[[Function], Function]:
        """Answer a command line: `def command(argv, ctx)`.

        What it prints, and what it writes to `ctx.out` and `ctx.err`, is the output. Return a text, bytes, an exit
        code, a `CliResult` or nothing; `sys.exit` ends it. With `concurrent` it may run beside other handlers.
        """
        refuse_function("cli", namespace)

        def register(function: Function) -> Function:
            declare(self.clis, "command lines", namespace, Command(function, concurrent))
            return function

        return register

    def action(self, name: str, *, concurrent: bool = False) -> Callable[[Function], Function]:
        """Do something for other plugins: `def act(data, ctx)` takes bytes and returns bytes, a text or JSON.

        With `concurrent` it may run beside other handlers.
        """
        refuse_function("action", name)

        def register(function: Function) -> Function:
            declare(self.actions, "actions", name, Command(function, concurrent))
            return function

        return register

    def on_snapshot(self, topic: str | None = None, *, latest: bool = False) -> Callable[[Function], Function]:
        """Hear what is published under a topic: `def seen(snapshot, ctx)`. The SDK subscribes to it.

        Without a topic, hear everything that arrives, and subscribe to nothing. `latest`: only the newest matters, so
        the host may stop an idle plugin that waits for it.
        """
        refuse_function("on_snapshot", topic)

        def register(function: Function) -> Function:
            self.snapshots.append((topic, Handler(function)))
            if latest and topic is not None and topic not in self.latest:
                self.latest.append(topic)
            return function

        return register

    def publishes(self, *topics: str) -> None:
        """Say which snapshots this plugin publishes, where hosts want to know that beforehand."""
        self.topics += [topic for topic in dict.fromkeys(topics) if topic not in self.topics]
