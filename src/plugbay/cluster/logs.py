"""Logs of plugins on nodes: a node reads the part that is asked for (`read_log`), a gateway asks all its nodes
(`NodeLogs`) and merges their lines by time.

The lines are those of the node's log files: redacted when they were written. An answer is bounded in bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from plugbay.cluster import envelope
from plugbay.cluster.envelope import Control, Frame, LogPart, LogRequest
from plugbay.host.admin.logs import LogLine, PluginLogs
from plugbay.host.journal import Journal
from plugbay.host.recording.org_logs import OrgLogs, org_label
from plugbay.wire.json_gate import Malformed

MAX_LINES = 200
"""Past lines of each node."""

MAX_BYTES = 128 << 10
"""Bytes of the texts in one answer."""

ANSWER_SECONDS = 2.0
"""Time for the answers of the nodes; a node without one is left out."""

FOLLOW_SECONDS = 1.0
"""Between two questions for new lines."""

MAX_TIME = 40
"""Characters of a time: a damaged file may have anything there."""

ID_BYTES = 16

ORG_FOLDER = "orgs"


class LogFiles:
    """The log files of a node: of each plugin, and of each org and plugin."""

    def __init__(self, log_dir: Path) -> None:
        self.written = OrgLogs(log_dir / ORG_FOLDER)
        """Takes the output of plugins, apart for each org."""
        self._of_all = PluginLogs(Journal(), log_dir)
        self._of_orgs = PluginLogs(Journal(), self.written.folder)

    def read(self, request: LogRequest) -> LogPart:
        """The lines that a gateway asks for."""
        logs, label = self._of_all, request.plugin
        if request.org is not None:
            logs, label = self._of_orgs, org_label(request.org, request.plugin)
        if request.after is None:
            lines, end = logs.stderr_tail(label, min(request.lines, MAX_LINES))
        else:
            lines, end = logs.stderr_after(label, request.after)
        kept, size = len(lines), 0
        while kept and size + len(lines[kept - 1].text.encode()) <= MAX_BYTES:
            kept -= 1
            size += len(lines[kept].text.encode())
        rows = tuple((line.at[:MAX_TIME], line.source, line.level, line.text) for line in lines[kept:])
        return LogPart(lines=rows, skipped=kept, end=end)


Places = Mapping[str, int]
"""By node: the place after the lines that were read."""


class Reading(NamedTuple):
    """Lines of several nodes, oldest first."""

    lines: list[LogLine]
    places: Places


class NodeLogs:
    """The logs of plugins on the nodes of a gateway."""

    def __init__(self, gateway: str, nodes: Callable[[], list[str]], send: Callable[[str, Control], bool]) -> None:
        """`nodes`: those that can answer; `send` gives an order to one of them."""
        self._gateway = gateway
        self._nodes = nodes
        self._send = send
        self._waiting: dict[str, tuple[str, asyncio.Future[LogPart]]] = {}

    def take(self, id: str, data: bytes) -> None:
        """An answer came; raises `Malformed`. One that came too late is dropped."""
        node, answer = self._waiting.get(id, ("", None))
        if answer is None or answer.done():
            return
        frame, body = envelope.unpack(Frame, data)
        if frame.call != id or frame.node != node:
            raise Malformed("an answer of another node")
        answer.set_result(envelope.decode_log(body))

    async def tail(self, plugin: str, org: str | None, count: int) -> Reading:
        """The last lines of all nodes."""
        nodes, count = self._nodes(), min(count, MAX_LINES)
        wanted = {node: LogRequest(plugin=plugin, org=org, lines=count) for node in nodes}
        read = await self._ask(wanted)
        return Reading(read.lines[-count:] if count else [], read.places)

    async def follow(self, plugin: str, org: str | None, places: Places) -> AsyncGenerator[LogLine, None]:
        """Lines after these places; of nodes without one from their first question on."""
        known = dict(places)
        while True:
            wanted = {
                node: LogRequest(plugin=plugin, org=org, after=known[node])
                if node in known
                else LogRequest(plugin=plugin, org=org)
                for node in self._nodes()
            }
            read = await self._ask(wanted)
            known |= read.places
            for line in read.lines:
                yield line
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _ask(self, wanted: Mapping[str, LogRequest]) -> Reading:
        answers = await asyncio.gather(*(self._ask_node(node, request) for node, request in wanted.items()))
        lines: list[LogLine] = []
        places: dict[str, int] = {}
        for node, part in zip(wanted, answers, strict=True):
            if part is None:
                continue
            places[node] = part.end
            if part.skipped and part.lines:
                text = f"{part.skipped:,} earlier lines are in the log of the node"
                lines.append(LogLine(part.lines[0][0], "host", "warn", text, node))
            lines += [LogLine(*line, node) for line in part.lines]
        return Reading(sorted(lines, key=lambda line: line.at), places)

    async def _ask_node(self, node: str, request: LogRequest) -> LogPart | None:
        """The answer of a node; None without one in time."""
        id = os.urandom(ID_BYTES).hex()
        answer: asyncio.Future[LogPart] = asyncio.get_running_loop().create_future()
        self._waiting[id] = node, answer
        try:
            if not self._send(node, Control(kind=envelope.LOGS, gateway=self._gateway, call=id, log=request)):
                return None
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            return None
        finally:
            del self._waiting[id]
