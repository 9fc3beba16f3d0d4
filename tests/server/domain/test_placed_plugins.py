"""The operator's installed plugins run on nodes: one copy of each that stays, with what it asks of its host."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.services.llm.chat import ChatReply, ChatRequest
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CompleteChat, GetStored, SetStored
from plugbay.server.domain.placed_plugins import DatabaseLeases, HostRequests
from tests.support.databases import database
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.nodes import PASSWORD, Cell, cell
from tests.support.patience import until
from tests.support.placing import LEDGER, STORAGE, TOOLS, Shelf, answered, held_by, holders, intervals, overlaps
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

SECONDS = 3.0
"""A short lease; a node that renews it in time needs a hundredth of that."""


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELL_PASSWORD", PASSWORD)


ASKS = """
waiting = {}
def tool_invoke(m):
    waiting[7] = m
    args = m["params"]["args"]
    request(7, args["method"], **args["params"])
def answered(m):
    reply(waiting.pop(m["id"]), {key: m[key] for key in ("result", "error") if key in m})
"""
"""A tool that asks the host whatever its input says."""


class Scripted:
    """A language model of the gateway."""

    async def chat(self, request: ChatRequest, timeout: float | None = None) -> ChatReply:
        return ChatReply("hi from the gateway")

    def stream(self, request: ChatRequest, timeout: float | None = None) -> Any:
        raise NotImplementedError


@contextmanager
def shelf_with_ledger(folder: Path) -> Iterator[tuple[Cell, Shelf]]:
    with cell(folder / "cell") as made:
        shelf = Shelf(made, folder, "ledger")
        shelf.install(write_kaged_plugin(folder / "src", "ledger", LEDGER, tools=TOOLS, capabilities=STORAGE))
        yield made, shelf


def settings(**environ: str) -> dict[str, Any]:
    return {"ledger": {"grants": STORAGE, "env": environ}}


@requirement("host:nodes-singletons", "host:nodes-requests")
def test_the_storage_of_a_plugin_survives_a_move_between_nodes(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    with shelf_with_ledger(tmp_path) as (made, shelf):

        async def main() -> None:
            async with (
                shelf.gateway(sqlite_url, settings(LEDGER_ENV="of the gateway")) as gateway,
                made.node("n1"),
                made.node("n2"),
            ):
                first = await held_by(gateway, "ledger", "n1", "n2")
                assert (await answered(gateway, "ledger/who", {}))["env"] == "of the gateway"
                assert "error" not in await answered(gateway, "ledger/put", {"value": [1, "ä"]})
                assert gateway.nodes is not None
                await gateway.nodes.cluster.order(first, "drain")
                await held_by(gateway, "ledger", "n2" if first == "n1" else "n1")
                assert (await answered(gateway, "ledger/get", {}))["result"]["value"] == [1, "ä"]

        run(main)


@exhaustive
@requirement("host:nodes-singletons")
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_two_nodes_never_run_one_plugin_at_the_same_time(fault: signal.Signals, tmp_path: Path, run: Run) -> None:
    written = tmp_path / "written"
    with (
        shelf_with_ledger(tmp_path) as (made, shelf),
        database("postgresql", tmp_path) as url,
        made.process("n1") as one,
        made.process("n2") as two,
    ):
        nodes = {"n1": one, "n2": two}

        async def main() -> None:
            async with shelf.gateway(url, settings(LEDGER_FILE=str(written)), SECONDS) as gateway:
                first = await held_by(gateway, "ledger", "n1", "n2")
                await until(lambda: bool(intervals(written)))
                pid = (await answered(gateway, "ledger/who", {}))["pid"]
                nodes[first].send(fault)
                other = "n2" if first == "n1" else "n1"
                await held_by(gateway, "ledger", other)
                await until(lambda: len(intervals(written)) > 1)
                if fault == signal.SIGSTOP:
                    nodes[first].send(signal.SIGCONT)
                    await until(lambda: is_up(gateway, first))
                assert (await answered(gateway, "ledger/who", {}))["pid"] != pid
                await held_by(gateway, "ledger", other)

        run(main)
    found = intervals(written)
    assert len(found) > 1 and overlaps(found) == [], found


@exhaustive
@requirement("host:nodes-requests")
def test_memory_and_models_are_those_of_the_gateway(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    with cell(tmp_path / "cell") as made:
        shelf = Shelf(made, tmp_path, "asker")
        shelf.install(write_nexo_plugin(tmp_path / "src", "asker", ASKS, tools=["ask"]))
        granted = {"asker": {"grants": ["memory.recall", "llm.complete"]}}

        async def main() -> None:
            async with shelf.gateway(sqlite_url, granted) as gateway, made.node("n1"):
                gateway.host.llm.register("scripted", Scripted(), "test")
                await gateway.host.memory.remember("ana", "likes green tea")
                await held_by(gateway, "asker", "n1")
                exports = gateway.host.exports  # the gateway learns the greeting
                await until(lambda: exports()["asker/asker_ask"].input_schema == {"type": "object"})
                recall = {"agent_id": "ana", "query": "teas", "limit": 3}
                heard = await answered(gateway, "asker_ask", {"method": "memory.recall", "params": recall})
                (entry,) = heard["result"]["entries"]
                assert entry["content"] == "likes green tea"
                chat = {"provider": "scripted", "model": "m", "messages": [{"role": "user", "content": "hi"}]}
                heard = await answered(gateway, "asker_ask", {"method": "llm.complete", "params": chat})
                assert heard["result"]["content"] == "hi from the gateway"

        run(main)


@exhaustive
@requirement("host:nodes-singletons")
def test_plugins_that_serve_one_call_run_on_any_node(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    with cell(tmp_path / "cell") as made:
        shelf = Shelf(made, tmp_path, "echo")
        shelf.install(write_plugin(tmp_path / "src", "echo"))

        async def main() -> None:
            async with shelf.gateway(sqlite_url) as gateway, made.node("n1") as one, made.node("n2") as two:
                await until(lambda: is_up(gateway, "n1") and is_up(gateway, "n2"))
                for number in range(6):
                    assert await answered(gateway, "echo/t", {"n": number}) == {"n": number}
                assert holders(gateway, "echo") == []
                await gateway.nodes.cluster.order("n1", "drain")  # type: ignore[union-attr]
                await until(lambda: not is_up(gateway, "n1"))
                assert await answered(gateway, "echo/t", {"n": 7}) == {"n": 7}
                assert len(one._ended) + len(two._ended) == 7 and len(two._ended) >= 1

        run(main)


def is_up(gateway: Any, name: str) -> bool:
    return any(node.name == name and state == "up" for node, state in gateway.nodes.cluster.nodes())


def test_overlaps_would_be_seen() -> None:
    assert overlaps({1: (0.0, 1.0), 2: (0.9, 2.0), 3: (3.0, 4.0)}) == [(1, 2)]


@requirement("host:nodes-requests")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=exhaustive)])
def test_a_write_with_an_old_epoch_is_refused(kind: str, tmp_path: Path, run: Run) -> None:
    with shelf_with_ledger(tmp_path) as (_, shelf), database(kind, tmp_path) as url:

        async def main() -> None:
            async with shelf.gateway(url, settings()) as gateway:
                taken = DatabaseLeases(gateway.database, gateway.host, 30.0)
                requests = HostRequests(gateway.host, gateway.database)

                async def ask(node: str, boot: str, epoch: int, op: Any) -> Any:
                    return await requests.answer(node, boot, "ledger", {"plugin/ledger": epoch}, op, lambda _: None)

                first = await taken.take("plugin/ledger", "n1", "a1")
                assert first == (True, ("n1", 1))
                assert await taken.take("plugin/ledger", "n2", "b2") == (False, ("n1", 1)), "it is held"
                assert await ask("n1", "a1", 1, SetStored("k", 1)) is None, "the present epoch is accepted"
                again = await taken.take("plugin/ledger", "n1", "a1")
                assert again == (True, ("n1", 2)), "a node that asks again begins another tenure"
                await taken.release({"plugin/ledger": 1}, "n1", "a1")
                assert await taken.renew({"plugin/ledger": 2}, "n1", "a1") == ["plugin/ledger"]
                assert await taken.renew({"plugin/ledger": 1}, "n1", "a1") == []
                others = (("n1", "a1", 1), ("n1", "a1", 3), ("n2", "a1", 2), ("n1", "b2", 2))
                ops = (SetStored("k", 2), GetStored("k"), CompleteChat("x", "y", []))
                for asker, op in itertools.product(others, ops):
                    refused = await ask(*asker, op)
                    assert isinstance(refused, Failure) and refused.code == Code.UNAVAILABLE, asker
                    assert refused.detail["reason"] == "old_epoch"
                assert await ask("n1", "a1", 2, GetStored("k")) == {"found": True, "value": 1}
                await taken.release({"plugin/ledger": 2}, "n1", "a1")
                assert await taken.take("plugin/ledger", "n2", "b2") == (True, ("n2", 3))

        run(main)
