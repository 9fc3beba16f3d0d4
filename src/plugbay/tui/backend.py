"""`Backend`: the plugins that the terminal app shows. `HostBackend` has those of a host in this process,
`ServerBackend` those of a running server.

Methods that are not async return at once: they read known values and queue input. `ServerBackend` sends each request on
a daemon thread, so neither the event loop nor the end of the process ever waits for the server.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote

from plugbay.host.admin import operating
from plugbay.host.admin.logs import MAX_TAIL, LogLine, PluginLogs
from plugbay.host.discovery.folders import Found
from plugbay.host.host import Host
from plugbay.host.journal import OWN_LINE, Note
from plugbay.host.screens.screens import Frame, Screen
from plugbay.host.status import PluginStatus
from plugbay.host.supervision.resident import SOURCE
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError, Problem
from plugbay.model.ids import full_name
from plugbay.model.lifecycle import PENDING, State
from plugbay.model.spec import Export, Lifetime, PluginSpec

T = TypeVar("T")

LIFECYCLE_TOPICS = "plugin.lifecycle.>"
LIFECYCLE_DEPTH = 1024

POLL_SECONDS = 0.25
"""Seconds between polls of a server while a screen or a log is shown."""

QUIET_POLL_SECONDS = 1.0
"""Seconds between polls while neither is shown; lifecycle events cause one at once."""

RETRY_SECONDS = 1.0
"""Seconds until a server that does not respond is tried again."""

POLL_ANSWER_SECONDS = 10.0
"""A server that does not answer a poll for so long does not respond."""

STREAM_ANSWER_SECONDS = 60.0
"""The same for the stream of events: several heartbeats."""

MAX_INPUT = 256
"""Input events that wait for the server; a flood loses the oldest."""

INPUT_BATCH = 64
"""Input events of one request: the limit of the API."""

INPUT_SECONDS = 1 / 30
"""Seconds between requests with input: the server limits requests, and the plugin is drawn no faster."""

OPERATIONS = {
    "start": operating.start,
    "stop": operating.stop,
    "restart": operating.restart,
    "reload": operating.reload,
}


def is_tool(export: Export) -> bool:
    return export.kind == "tool"


class LifecycleEvent(NamedTuple):
    """The start or the end of a process."""

    kind: str
    """`started`, `crashed`, `exited`, …"""
    facts: Mapping[str, Any]


class Called(NamedTuple):
    """The end of a call."""

    output: Any
    failure: Failure | None
    duration_ms: float


class Watched(NamedTuple):
    """What the app shows."""

    plugin_id: str = ""
    screen: str = ""
    """The name of the screen; empty if the plugin has none."""
    log: bool = False


class ScreenSource(Protocol):
    """Screens, their frames and their input."""

    def all(self) -> list[Screen]: ...

    async def render(self, name: str, width: int, height: int) -> Frame:
        """Raises `CallFailed`."""
        ...

    def dirty(self, name: str) -> bool: ...

    def wedged(self, plugin_id: str) -> bool: ...

    def press(self, name: str, key: Mapping[str, Any]) -> bool: ...

    def mouse(self, name: str, mouse: Mapping[str, Any]) -> bool: ...


class Backend(Protocol):
    """The plugins of one host, wherever it runs."""

    location: str
    """For the header; empty for a host in this process."""
    quit_effect: str
    """The effect of quitting the app."""
    grant_effect: str
    """How long a grant lasts."""

    @property
    def lost(self) -> str:
        """Why the host does not respond; empty while it does."""
        ...

    @property
    def screens(self) -> ScreenSource: ...

    @property
    def problems(self) -> list[Found]: ...

    def plugins(self) -> list[PluginStatus]: ...

    def watch(self, watched: Watched) -> None:
        """The app shows this from now on."""
        ...

    def log(self, plugin_id: str) -> list[Note]:
        """Notes of the journal and lines of stderr of the watched plugin, by time."""
        ...

    async def act(self, plugin_id: str, action: str) -> bool:
        """Send an action to a plugin; False when it does not run. Raises `CallFailed`."""
        ...

    async def operate(self, plugin_id: str, operation: str) -> None:
        """`start`, `stop`, `restart` or `reload` a plugin; raises `CallFailed`."""
        ...

    async def grant(self, plugin_id: str, capabilities: Sequence[str]) -> None:
        """Raises `CallFailed`."""
        ...

    async def tools(self, plugin_id: str) -> list[Export]:
        """The tools of a plugin, with their schemas; raises `CallFailed`."""
        ...

    async def call(self, plugin_id: str, tool: str, value: Any) -> Called:
        """Call a tool; a failure is a value, unless the host does not respond."""
        ...

    def lifecycle(self) -> AsyncIterator[LifecycleEvent]:
        """Lifecycle events from now on; `plugins()` reflects each of them."""
        ...


def to_note(line: LogLine) -> Note:
    """A line of a plugin's log as a note."""
    try:
        at = datetime.fromisoformat(line.at).timestamp()
    except ValueError:  # the file may have been edited
        at = 0.0
    if line.source == "host":
        kind, _, text = line.text.partition(": ")
        return Note(at, line.level, kind, text)
    return Note(at, line.level, f"{OWN_LINE}{line.level}" if line.source == "plugin" else line.source, line.text)


class HostBackend:
    """The plugins of a host in this process."""

    location = ""
    quit_effect = "stop all plugins and exit"
    grant_effect = "Granted until this app ends; the plugin is reloaded."
    lost = ""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._logs = PluginLogs(host.journal, host.log_dir)

    @property
    def screens(self) -> ScreenSource:
        return self._host.screens

    @property
    def problems(self) -> list[Found]:
        return self._host.problems

    def plugins(self) -> list[PluginStatus]:
        return self._host.plugins()

    def watch(self, watched: Watched) -> None:
        """Nothing to do: everything is at hand."""

    def log(self, plugin_id: str) -> list[Note]:
        lines = map(to_note, self._logs.stderr(plugin_id, MAX_TAIL))
        return sorted([*self._host.journal.recent(plugin_id), *lines], key=lambda note: note.at)

    async def act(self, plugin_id: str, action: str) -> bool:
        return self._host.screens.act(plugin_id, action)

    async def operate(self, plugin_id: str, operation: str) -> None:
        await OPERATIONS[operation](self._host, plugin_id)

    async def grant(self, plugin_id: str, capabilities: Sequence[str]) -> None:
        config = self._host.config
        ours = config.plugin(plugin_id)
        known = [name for status in self.plugins() if status.spec.id == plugin_id for name in status.granted]
        wider = ours.model_copy(update={"grants": list(dict.fromkeys([*known, *(ours.grants or ()), *capabilities]))})
        await operating.apply(self._host, config.model_copy(update={"plugins": {**config.plugins, plugin_id: wider}}))
        await operating.reload(self._host, plugin_id)

    async def tools(self, plugin_id: str) -> list[Export]:
        found = self._host.exports()
        return [
            export for name, export in found.items() if name == full_name(plugin_id, export.name) and is_tool(export)
        ]

    async def call(self, plugin_id: str, tool: str, value: Any) -> Called:
        result = await self._host.attempt(full_name(plugin_id, tool), value)
        return Called(result.value(), result.failure, result.record.duration_ms)

    async def lifecycle(self) -> AsyncIterator[LifecycleEvent]:
        async with self._host.subscribe(LIFECYCLE_TOPICS, depth=LIFECYCLE_DEPTH) as stream:
            async for event in stream:
                if event.source == SOURCE:
                    yield LifecycleEvent(event.topic.rpartition(".")[2], event.payload)


# A running server.


class Client(Protocol):
    """Blocking requests to one server; they raise `PlugbayError`."""

    url: str

    def get(self, path: str, *, wait: float = ..., **query: Any) -> Any: ...

    def post(self, path: str, body: Any = None) -> Any: ...

    def events(self, method: str, path: str, *, wait: float = ..., **query: Any) -> Iterator[tuple[str, Any]]: ...


class _Connection:
    """Requests to one server, each on a daemon thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: set[asyncio.Future[Any]] = set()
        self.lost = ""

    async def request(self, send: Callable[[Client], T]) -> T:
        """The result of a function that sends requests and reads their answers; raises `PlugbayError`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(error)

        def run() -> None:
            result: T | None = None
            problem: Exception | None = None
            try:
                result = send(self._client)
            except PlugbayError as error:
                problem = error
            except Exception as error:  # the answer has another shape
                text = f"the server {self._client.url} may have another version; its answer is unexpected"
                problem = PlugbayError(f"{text}: {error!r}")
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, result, problem)

        threading.Thread(target=run, name="plugbay-tui-request", daemon=True).start()
        self._open.add(answer)
        try:
            return await answer
        finally:
            self._open.discard(answer)

    def lose(self, reason: str) -> None:
        """The server does not respond. Open requests fail: some of them would wait for an hour."""
        self.lost = reason
        for answer in self._open:
            if not answer.done():
                answer.set_exception(CallFailed(Failure(Code.UNAVAILABLE, reason)))


def _to_call_failed(error: PlugbayError) -> CallFailed:
    return error if isinstance(error, CallFailed) else CallFailed(Failure(Code.UNAVAILABLE, str(error)))


class _ScreenState(NamedTuple):
    """The state of a screen that the server reported last."""

    plugin_id: str
    revision: int
    dirty: bool
    wedged: bool


class ServerScreens:
    """The screens of a server."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._all: list[Screen] = []
        self._states: dict[str, _ScreenState] = {}
        self._rendered: dict[str, int] = {}
        """The revision of the last frame of each screen."""
        self._input: deque[tuple[str, dict[str, Any]]] = deque(maxlen=MAX_INPUT)
        self._has_input = asyncio.Event()

    def all(self) -> list[Screen]:
        return self._all

    def update_all(self, listed: list[dict[str, Any]]) -> None:
        self._all = [Screen(each["name"], each["plugin"], each["screen"]) for each in listed]
        for each in listed:
            self._update(each)

    def _update(self, shape: Mapping[str, Any]) -> None:
        """Take a state, unless a newer one is known: requests overtake each other."""
        state = _ScreenState(shape["plugin"], shape["revision"], shape["dirty"], shape["wedged"])
        known = self._states.get(shape["name"])
        if known is None or state.revision >= known.revision:
            self._states[shape["name"]] = state

    def forget(self) -> None:
        """Forget states: another server may respond now, which counts revisions anew."""
        self._states.clear()
        self._rendered.clear()

    # Frames.

    async def render(self, name: str, width: int, height: int) -> Frame:
        body = {"screen": name, "width": width, "height": height, "settle": False}

        def render(client: Client) -> tuple[dict[str, Any] | None, Failure | None, Frame | None]:
            answer = client.post("/api/v1/screens:render", body)
            if answer["failure"] is not None:
                return answer["screen"], Failure.from_json(answer["failure"]), None
            return answer["screen"], None, Frame.from_json(answer["frame"])

        try:
            state, failure, frame = await self._connection.request(render)
        except PlugbayError as error:
            self._states.pop(name, None)  # the next poll decides whether to try again, also after a restart
            self._rendered.pop(name, None)
            raise _to_call_failed(error) from None
        if state is not None:
            self._rendered[name] = state["revision"]
            self._update(state)
        if frame is None:
            raise CallFailed(failure or Failure(Code.UNAVAILABLE, "the server sent no frame"))
        return frame

    def dirty(self, name: str) -> bool:
        state = self._states.get(name)
        if state is None or self._connection.lost:
            return False
        return state.dirty or state.revision != self._rendered.get(name)

    def wedged(self, plugin_id: str) -> bool:
        return any(state.wedged for state in self._states.values() if state.plugin_id == plugin_id)

    # Input.

    def press(self, name: str, key: Mapping[str, Any]) -> bool:
        return self._queue(name, {"key": dict(key)})

    def mouse(self, name: str, mouse: Mapping[str, Any]) -> bool:
        return self._queue(name, {"mouse": dict(mouse)})

    def _queue(self, name: str, event: dict[str, Any]) -> bool:
        if self._connection.lost:
            return False
        self._input.append((name, event))
        self._has_input.set()
        return True

    async def send_input(self) -> None:
        """Send queued events, one request after the other, until cancelled."""
        while True:
            await self._has_input.wait()
            self._has_input.clear()
            while self._input:
                await self._send(self._next_batch())
                await asyncio.sleep(INPUT_SECONDS)

    async def _send(self, body: dict[str, Any]) -> None:
        """Send events. They are lost if this fails: some of them may have been delivered."""
        with suppress(PlugbayError):
            state = await self._connection.request(lambda client: client.post("/api/v1/screens:input", body)["screen"])
            if state is not None:
                self._update(state)

    def _next_batch(self) -> dict[str, Any]:
        """The next events of one screen, as the body of a request."""
        name = self._input[0][0]
        events: list[dict[str, Any]] = []
        while self._input and self._input[0][0] == name and len(events) < INPUT_BATCH:
            events.append(self._input.popleft()[1])
        return {"screen": name, "events": events}


class _Snapshot(NamedTuple):
    """The answers of one poll."""

    plugins: list[PluginStatus]
    problems: list[Found]
    screens: list[dict[str, Any]]
    log: list[Note]


class ServerBackend:
    """The plugins of a running server. Enter it before use; leaving it leaves the server as it is."""

    quit_effect = "exit; the plugins of the server keep running"
    grant_effect = "Granted for good, in the plugbay.toml of the server; the plugin is reloaded."

    def __init__(self, client: Client) -> None:
        self.location = f"server {client.url}"
        self._connection = _Connection(client)
        self._screens = ServerScreens(self._connection)
        self._plugins: list[PluginStatus] = []
        self._problems: list[Found] = []
        self._log: tuple[str, list[Note]] = ("", [])
        self._watched = Watched()
        self._poll_now = asyncio.Event()
        self._polling = asyncio.Lock()
        self._arrived: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._refresh()
        jobs = (self._poll(), self._follow_events(), self._screens.send_input())
        self._tasks = [asyncio.ensure_future(job) for job in jobs]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def lost(self) -> str:
        return self._connection.lost

    @property
    def screens(self) -> ServerScreens:
        return self._screens

    @property
    def problems(self) -> list[Found]:
        return self._problems

    def plugins(self) -> list[PluginStatus]:
        return self._plugins

    def watch(self, watched: Watched) -> None:
        if watched != self._watched:
            self._watched = watched
            self._poll_now.set()

    def log(self, plugin_id: str) -> list[Note]:
        return self._log[1] if self._log[0] == plugin_id else []

    async def act(self, plugin_id: str, action: str) -> bool:
        body = {"plugin": plugin_id, "action": action}
        try:
            return await self._connection.request(
                lambda client: bool(client.post("/api/v1/screens:act", body)["delivered"])
            )
        except PlugbayError as error:
            raise _to_call_failed(error) from None

    async def operate(self, plugin_id: str, operation: str) -> None:
        await self._post(_path(plugin_id, f":{operation}"))

    async def grant(self, plugin_id: str, capabilities: Sequence[str]) -> None:
        await self._post(_path(plugin_id, ":grant"), {"capabilities": list(capabilities)})

    async def _post(self, path: str, body: Any = None) -> None:
        try:
            await self._connection.request(lambda client: client.post(path, body))
            await self._refresh()
        except PlugbayError as error:
            raise _to_call_failed(error) from None

    async def tools(self, plugin_id: str) -> list[Export]:
        try:
            found = await self._connection.request(
                lambda client: client.get(_path(plugin_id), wait=POLL_ANSWER_SECONDS)["exports"]
            )
        except PlugbayError as error:
            raise _to_call_failed(error) from None
        exports = [Export(each["kind"], each["name"], each["description"], each["input_schema"]) for each in found]
        return list(filter(is_tool, exports))

    async def call(self, plugin_id: str, tool: str, value: Any) -> Called:
        body = {"export": full_name(plugin_id, tool), "input": value}
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._connection.request(lambda client: client.post("/api/v1/calls", body))
        except PlugbayError as error:
            took = asyncio.get_running_loop().time() - began
            return Called(None, _to_call_failed(error).failure, took * 1000)
        failure = None if answer["failure"] is None else Failure.from_json(answer["failure"])
        return Called(answer["output"], failure, answer["duration_ms"])

    async def lifecycle(self) -> AsyncIterator[LifecycleEvent]:
        while True:
            event = await self._arrived.get()
            with suppress(PlugbayError):
                await self._refresh()
            yield LifecycleEvent(event["topic"].rpartition(".")[2], event["payload"])

    # Requests.

    async def _poll(self) -> None:
        while True:
            seconds = POLL_SECONDS if self._watched.screen or self._watched.log else QUIET_POLL_SECONDS
            try:
                await self._refresh()
            except PlugbayError as error:
                self._connection.lose(str(error))
                seconds = RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._poll_now.wait()
            self._poll_now.clear()

    async def _refresh(self) -> None:
        """Read everything that the app shows; raises `PlugbayError`."""
        async with self._polling:
            watched = self._watched
            snapshot = await self._connection.request(lambda client: _read(client, watched))
            if self._connection.lost:
                self._connection.lost = ""
                self._screens.forget()
            self._plugins, self._problems = snapshot.plugins, snapshot.problems
            self._screens.update_all(snapshot.screens)
            self._log = (watched.plugin_id, snapshot.log)

    async def _follow_events(self) -> None:
        loop = asyncio.get_running_loop()

        def follow(client: Client) -> None:
            stream = client.events("GET", "/api/v1/events", wait=STREAM_ANSWER_SECONDS, topic=LIFECYCLE_TOPICS)
            for _, event in stream:
                if event["source"] == SOURCE:
                    loop.call_soon_threadsafe(self._arrived.put_nowait, event)

        while True:
            with suppress(PlugbayError):
                await self._connection.request(follow)
            await asyncio.sleep(RETRY_SECONDS)


def _read(client: Client, watched: Watched) -> _Snapshot:
    """One poll. Exports are read only for the page about a plugin without a screen."""
    listed = client.get("/api/v1/plugins", wait=POLL_ANSWER_SECONDS)
    screens = client.get("/api/v1/screens", wait=POLL_ANSWER_SECONDS, shown=watched.screen or None)["screens"]
    plugins, log = [_to_status(shape) for shape in listed["plugins"]], []
    at = next((at for at, status in enumerate(plugins) if status.spec.id == watched.plugin_id), None)
    if at is not None and not watched.screen:
        plugins[at] = _to_status(client.get(_path(watched.plugin_id), wait=POLL_ANSWER_SECONDS))
    if at is not None and watched.log:
        lines = client.get(_path(watched.plugin_id, "/logs"), wait=POLL_ANSWER_SECONDS, tail=MAX_TAIL)["lines"]
        log = [to_note(LogLine(line["at"], line["source"], line["level"], line["text"])) for line in lines]
    return _Snapshot(plugins, [_to_found(shape) for shape in listed["invalid"]], screens, log)


def _path(plugin_id: str, rest: str = "") -> str:
    return f"/api/v1/plugins/{quote(plugin_id, safe='/')}{rest}"


def _to_status(shape: Mapping[str, Any]) -> PluginStatus:
    """The status in the public JSON of a plugin; its spec has only the fields that the app shows."""
    exports = [Export(each["kind"], each["name"], each["description"]) for each in shape.get("exports", ())]
    spec = PluginSpec(
        shape["id"],
        shape["version"],
        shape["contract"],
        Path(shape["folder"]),
        (),
        name=shape["name"],
        description=shape["description"],
        lifetime=Lifetime(shape["lifetime"]),
        exports=tuple(exports),
        capabilities=tuple(shape["requested"]),
        commands=tuple(shape["commands"]),
    )
    return PluginStatus(
        spec,
        PENDING if shape["state"] == PENDING else State(shape["state"]),
        tuple(shape["granted"]),
        shape["busy"],
        shape["ready"],
        shape["pid"],
        shape["generation"],
        shape["counters"],
        missing=tuple(shape["missing"]),
    )


def _to_found(shape: Mapping[str, Any]) -> Found:
    problems = [
        Problem(each["code"], each["path"], each["message"], line=each["line"], severity=each["severity"])
        for each in shape["problems"]
    ]
    return Found(Path(shape["folder"]), shape["contract"], None, tuple(problems))
