"""A node reads bounded parts of its log files; a gateway merges those of all nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.cluster import envelope
from plugbay.cluster import logs as logs_module
from plugbay.cluster.envelope import Control, Frame, LogPart, LogRequest
from plugbay.cluster.logs import MAX_BYTES, MAX_LINES, LogFiles, NodeLogs
from plugbay.wire.json_gate import Malformed
from tests.cluster.test_envelope import ID
from tests.support.loops import Run, run  # noqa: F401
from tests.support.patience import until


def written(folder: Path, org: str, *lines: str) -> LogFiles:
    files = LogFiles(folder)
    files.written.write(org, "acme/p", lines)
    return files


def texts(part: LogPart) -> list[str]:
    return [text for *_, text in part.lines]


def test_the_last_lines_and_those_after_a_place_are_read(tmp_path: Path) -> None:
    files = written(tmp_path, "org_1", "one", "two", "three")
    first = files.read(LogRequest(plugin="acme/p", org="org_1", lines=2))
    assert texts(first) == ["[start] two", "[start] three"] and first.skipped == 0
    files.written.write("org_1", "acme/p", ["four"])
    rest = files.read(LogRequest(plugin="acme/p", org="org_1", after=first.end))
    assert texts(rest) == ["[start] four"]
    assert texts(files.read(LogRequest(plugin="acme/p", org="org_1", after=rest.end))) == []
    assert texts(files.read(LogRequest(plugin="acme/p", org="org_2", lines=9))) == []
    assert texts(files.read(LogRequest(plugin="../orgs/org_1:acme/p", lines=9))) == []


def test_an_answer_is_bounded_in_lines_and_bytes(tmp_path: Path) -> None:
    files = written(tmp_path, "org_1", *(str(number) for number in range(MAX_LINES + 5)))
    part = files.read(LogRequest(plugin="acme/p", org="org_1", lines=1000))
    assert len(part.lines) == MAX_LINES and texts(part)[-1].endswith(str(MAX_LINES + 4))
    files = written(tmp_path, "org_2", *("x" * 4096 for _ in range(60)))
    part = files.read(LogRequest(plugin="acme/p", org="org_2", lines=60))
    assert part.skipped + len(part.lines) == 60 and part.skipped > 0
    assert sum(map(len, texts(part))) <= MAX_BYTES


class Nodes:
    """Nodes that answer at once with what a test gives them."""

    def __init__(self, parts: dict[str, LogPart | None]) -> None:
        self.parts = parts
        self.asked: list[Control] = []
        self.logs = NodeLogs(ID, lambda: list(parts), self.send)

    def send(self, node: str, order: Control) -> bool:
        self.asked.append(order)
        part = self.parts[node]
        if part is None:
            return False
        assert order.call is not None
        frame = Frame(call=order.call, node=node, seq=0, kind="done")
        self.logs.take(order.call, envelope.pack(frame, envelope.encode_log(part)))
        return True


def part(*lines: tuple[str, str], skipped: int = 0, end: int = 0) -> LogPart:
    return LogPart(lines=tuple((at, "stderr", "info", text) for at, text in lines), skipped=skipped, end=end)


def test_lines_of_nodes_are_merged_by_time_and_say_where_they_are_from(run: Run) -> None:  # noqa: F811
    nodes = Nodes({"n1": part(("1", "a"), ("3", "c"), end=7), "n2": part(("2", "b"), skipped=4, end=9), "n3": None})

    async def main() -> None:
        read = await nodes.logs.tail("acme/p", "org_1", 100)
        assert [(line.node, line.text) for line in read.lines] == [
            ("n1", "a"),
            ("n2", "4 earlier lines are in the log of the node"),
            ("n2", "b"),
            ("n1", "c"),
        ]
        assert read.places == {"n1": 7, "n2": 9}, "a node that does not answer is left out"
        assert [line.text for line in (await nodes.logs.tail("acme/p", None, 1)).lines] == ["c"]
        following = nodes.logs.follow("acme/p", "org_1", read.places)
        nodes.asked.clear()
        assert (await anext(following)).text == "a"
        assert [order.log.after for order in nodes.asked if order.log is not None] == [7, 9, None]
        await following.aclose()

    run(main)


def test_an_answer_of_another_node_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(logs_module, "ANSWER_SECONDS", 0.2)

    async def main() -> None:
        asked: list[Control] = []

        def send(node: str, order: Control) -> bool:
            asked.append(order)
            return True

        logs = NodeLogs(ID, lambda: ["n1"], send)
        task = asyncio.create_task(logs.tail("acme/p", None, 1))
        await until(lambda: bool(asked))
        (order,) = asked
        assert order.call is not None
        frame = Frame(call=order.call, node="n2", seq=0, kind="done")
        with pytest.raises(Malformed):
            logs.take(order.call, envelope.pack(frame, envelope.encode_log(part(("1", "forged")))))
        with pytest.raises(Malformed):
            logs.take(order.call, b"no frame")
        logs.take(ID, b"an answer that came too late")
        assert (await task).lines == []

    run(main)
