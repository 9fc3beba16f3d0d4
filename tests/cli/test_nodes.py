"""`plugbay node` and `plugbay nodes`: join a cell, show its nodes, drain one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.nodes import show
from plugbay.cli.render import output
from tests.cli.conftest import Run
from tests.support.nodes import PASSWORD, Cell, cell
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with cell(tmp_path_factory.mktemp("cell")) as running:
        yield running


def config(folder: Path, made: Cell) -> str:
    path = folder / "gateway.toml"
    path.write_text(
        f'[cluster]\nnats = ["{made.nats.url}"]\nuser = "gateway"\npassword_env = "CELL_PASSWORD"\n', "utf-8"
    )
    return str(path)


@exhaustive
@requirement("host:nodes-drain", "host:nodes-join")
def test_an_operator_sees_the_nodes_and_drains_one(
    run: Run, made: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELL_PASSWORD", PASSWORD)
    file = config(tmp_path, made)
    empty = run("nodes", "--config", file)
    assert empty.code == 0 and "no node is connected" in empty.out
    with made.process("n1"):
        found = run("nodes", "--config", file, "--json").json["nodes"]
        assert [(row["node"], row["state"], row["calls"]) for row in found] == [("n1", "up", 0)]
        assert found[0]["labels"]["zone"] == "n1" and found[0]["sandbox"] is False and found[0]["held"] == []
        drained = run("nodes", "drain", "n1", "--config", file)
        assert drained.code == 0 and "draining" in drained.out and drained.out.startswith("NODE")
        again = run("nodes", "drain", "n1", "--undo", "--config", file, "--json")
        assert again.json["nodes"][0]["state"] == "up"
        missing = run("nodes", "drain", "n9", "--config", file)
        assert missing.code == 4 and "there is no node n9" in missing.err


def test_the_tables_have_nodes_with_their_calls_and_gateways_with_their_leases(capsys: Any) -> None:
    called = {"total": 1204, "failed": 3, "refused": 0, "per_minute": 12, "p50_ms": 4.2}
    node = {"node": "n1", "state": "up", "calls": 3, "places": 256, "children": 2, "memory_bytes": 120 << 20}
    node |= {"sandbox": True, "release": "1.0.0", "labels": {"zone": "a"}, "plugins": ["acme/p 1.0.0"]}
    node["held"] = ["acme.a", "b"]
    silent = {**node, "node": "n2", "state": "gone", "silent_ms": 90_000, "called": None}
    nodes = [{**node, "silent_ms": 400, "called": called}, silent]
    gateway = {
        "id": "gw_1",
        "host": "a",
        "pid": 7,
        "epoch": 3,
        "lease_ends_at": "2026-11-18T20:00:00Z",
        "is_this": True,
    }
    show(output.out(), {"cluster": "main", "problem": None, "nodes": nodes, "gateways": [gateway]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:6] == ["n1", "up", "3/256", "1204", "3", "12"] and "zone=a" in " ".join(lines)
    assert "holds acme.a, b" in " ".join(lines)
    assert any(line.split()[:3] == ["n2", "gone", "3/256"] for line in lines)
    assert any(line.split() == ["gw_1", "*", "a", "7", "2026-11-18T20:00:00Z", "3"] for line in lines)
    show(output.out(), {"cluster": None, "problem": None, "nodes": [], "gateways": []})
    assert "run packages themselves" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["drain"], ["stop", "n1"], ["--undo"]])
def test_half_an_order_is_refused(run: Run, words: list[str]) -> None:
    done = run("nodes", *words)
    assert done.code == 2 and "plugbay nodes drain NAME" in done.err


@pytest.mark.parametrize("command", ["node", "nodes"])
def test_without_a_cluster_there_is_nothing_to_join(run: Run, command: str) -> None:
    done = run(command)
    assert done.code == 3 and "[cluster]" in done.err


def test_a_name_that_is_no_word_of_a_subject_is_refused(run: Run, made: Cell, tmp_path: Path) -> None:
    done = run("node", "--name", "n1.*", "--config", config(tmp_path, made))
    assert done.code == 2 and "NATS subjects" in done.err


@exhaustive
def test_nats_that_is_not_there_is_reported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gone.toml"
    path.write_text('[cluster]\nnats = ["nats://127.0.0.1:1"]\n', "utf-8")
    done = run("nodes", "--config", str(path))
    assert done.code == 1 and "NATS cannot be reached" in done.err
