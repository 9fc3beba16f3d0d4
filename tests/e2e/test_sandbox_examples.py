"""Every example works under the policy of its own manifest, and really is confined: the kernel says so.

Discovered: a new example is here by itself, and fails as long as nothing of it can be called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.host.config.config import load
from plugbay.host.discovery.folders import contracts_in, inspect
from plugbay.model.spec import Export
from plugbay.process.sandbox.jail import Jail
from plugbay.process.sandbox.policy import Reach
from plugbay.process.sandbox.programs import alternative
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import run_on
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import one_of_each

EXAMPLES = Path(__file__).parents[2] / "examples"
SEATS = [
    (folder, contract) for folder in sorted(EXAMPLES.iterdir()) if folder.is_dir() for contract in contracts_in(folder)
]

UNASKED = {"relay", "tea_shop"}
"""Plugins of nexo whose manifests do not ask for a sandbox. Those of rune and MCP cannot. The operator confines all."""

OPERATOR = """\
[host]
state_dir = "state"

[project]
root = "project"

[memory]
path = "memory.db"
"""

CONFINED = "[sandbox]\nrequire = true\n"

MORE = {"relay": '[plugins.relay.sandbox]\nnetwork = ["host"]\n'}
"""What an operator who requires a sandbox must open: the relay listens where others connect."""

BESIDE = {"memory-notes": "toy-model", "usage-publisher": "usage-burndown", "usage-report": "usage-publisher"}
"""Whom an example needs to do anything, or who shows what it does."""

TALK = [{"role": "user" if at % 2 == 0 else "assistant", "content": f"message {at}"} for at in range(30)]
ORDER = {"items": [{"name": "sencha", "price": 4.2}], "ordered": "2026-05-17"}
GIVEN: dict[str, dict[str, Any]] = {
    "quote": ORDER,
    "search_notes": {"query": "tea"},
    "tea_shop_quote": ORDER,
    "prices.refresh": {},
    "toy": {"model": "quote", "messages": [{"role": "user", "content": "tea?"}]},
    "run_webhook": {"type": "run.completed", "subject": {"kind": "run", "id": "run_1"}, "summary": {}},
    "release_notes": {"trigger": {"type": "user_request", "input": [{"type": "text", "text": "feat: a menu"}]}},
    "coding_window": {
        "source": {"projection": {"blocks": [{"kind": "input", "content": []}]}},
        "target": {"max_input_tokens": 100},
    },
}
"""Inputs for exports whose schemas have no example."""

FIRED = {"before_message": {"body": "to ada@example.org"}, "on_session_start": {}}

NAMESPACES = ("pid", "net", "mnt", "ipc", "uts", "user", "cgroup")


class Seen:
    """What the kernel said of each plugin's process when it began to run. It waits for its first line then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facts: list[dict[str, str]] = []
        admit = Jail.admit

        def watched(cell: Jail, monitor: int, watch: int | None, stderr: int) -> None:
            admit(cell, monitor, watch, stderr)
            self.facts.append(facts_of(cell.leader))

        monkeypatch.setattr(Jail, "admit", watched)


def facts_of(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    spaces = {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES}
    return {**dict(line.split(":\t", 1) for line in lines if ":\t" in line), **spaces}


async def used(host: Host) -> int:
    """Try everything that plugins of a host offer; how much that was."""
    return sum([await _tried(host, name, export) for name, export in host.exports().items()])


async def _tried(host: Host, name: str, export: Export) -> bool:
    examples = (export.input_schema or {}).get("examples", [])
    given = examples[0] if examples else GIVEN.get(export.name)
    if given is not None:
        result = await host.attempt(name, given)
        assert result.failure is None, (name, result.failure)
    elif export.kind == "screen":
        assert (await host.screens.render(name, 80, 24)).cells
    elif export.kind == "cli_namespace" and "." not in export.name:  # with a dot: an action
        done = await host.run_cli(export.name, ["--help"])
        assert done.stdout or done.stderr
    elif export.kind == "channel":
        await host.channels[export.name].start()
        assert (await host.call("relay_status"))["listening"]
    elif export.kind == "compactor":
        assert (await host.compact(TALK)).compacted_by is not None
    elif export.name in FIRED:
        assert (await host.fire(export.name, FIRED[export.name])).skipped == ()
    else:
        return False
    return True


def loaded(folder: Path, contract: str, tmp_path: Path, **options: Any) -> Host:
    """A host for an example and whom it needs. Confined by default; where no manifest asks for it, by the operator."""
    found = inspect(folder, contract)
    assert found.spec is not None, found.problems
    (tmp_path / "project").mkdir(exist_ok=True)
    config = tmp_path / "plugbay.toml"
    asked = found.spec.sandbox is not None
    config.write_text(OPERATOR if asked else OPERATOR + CONFINED + MORE.get(found.spec.id, ""))
    beside = [inspect(EXAMPLES / BESIDE[folder.name])] if folder.name in BESIDE else []
    return Host([found, *beside], load(config), grant_all=True, **options)


@pytest.mark.parametrize("seat", one_of_each(SEATS, lambda seat: seat[1]), ids=lambda seat: f"{seat[0].name}-{seat[1]}")
def test_an_example_works_confined(seat: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, contract = seat
    seen, ours = Seen(monkeypatch), facts_of("self")

    async def main() -> None:
        async with loaded(folder, contract, tmp_path) as host:
            assert await host.settled(PATIENCE)
            assert await host.meet() == {}
            assert await used(host) > 0, "nothing of it was tried: name an input in GIVEN"
            networks = {status.spec.id: status.confinement.policy for status in host.plugins()}
            shared = [policy for policy in networks.values() if policy and policy.network.reach is Reach.HOST]
            assert None not in networks.values()
            assert len(seen.facts) >= len(networks)
            apart = set(NAMESPACES) - ({"net"} if shared else set())
            for facts in seen.facts:
                assert (facts["Seccomp"], facts["NoNewPrivs"], facts["CapEff"]) == ("2", "1", "0" * 16)
                assert "0" not in facts["Uid"].split()
                assert [name for name in apart if facts[name] == ours[name]] == []

    run_on("asyncio")(main)


def test_a_plugin_that_is_let_off_is_seen_to_be_in_the_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control of the test above: the same facts of the same plugin, without a sandbox."""
    seen, ours = Seen(monkeypatch), facts_of("self")

    async def main() -> None:
        async with loaded(EXAMPLES / "session-memory", "kaged", tmp_path, unconfined=True) as host:
            assert await used(host) > 0
            pid = host.plugins()[0].pid
            assert pid is not None
            facts = facts_of(pid)
            assert (facts["Seccomp"], facts["Uid"], seen.facts) == (ours["Seccomp"], ours["Uid"], [])
            assert {name: facts[name] for name in NAMESPACES} == {name: ours[name] for name in NAMESPACES}

    run_on("asyncio")(main)


def test_only_known_examples_need_the_word_of_an_operator() -> None:
    specs = [inspect(*seat).spec for seat in SEATS]
    unasked = {spec.id for spec in specs if spec and spec.sandbox is None and spec.contract not in ("rune", "mcp")}
    assert unasked == UNASKED
    assert {spec.contract for spec in specs if spec} == {"rune", "nexo", "kaged", "ainb", "vai", "mcp"}


AWK = """\
{
    match($0, /"id":[0-9]+/)
    id = substr($0, RSTART + 5, RLENGTH - 5)
    if ($0 ~ /"method":"initialize"/) {
        said = "{\\"name\\":\\"p\\",\\"version\\":\\"1.0.0\\",\\"api_version\\":1,\\"methods\\":[\\"p.echo\\"],"
        said = said "\\"notifications\\":[],\\"capabilities_used\\":[]}"
    } else if ($0 ~ /"method":"p.echo"/) {
        ls = system("test -x /bin/ls") == 0 ? "seen" : "hidden"
        said = "{\\"words\\":\\"" toupper("made by awk") "\\",\\"ls\\":\\"" ls "\\"}"
    } else {
        said = "{\\"status\\":\\"ok\\"}"
    }
    if (RSTART > 0) { print "{\\"jsonrpc\\":\\"2.0\\",\\"id\\":" id ",\\"result\\":" said "}"; fflush() }
}
"""
"""A plugin of kaged. mawk reads a pipe line by line only with `-W interactive`, which other awks ignore."""

INTERACTIVE = ("-W", "interactive", "-f")


@requirement("host:sandbox-alternatives")
@pytest.mark.skipif(not alternative("/usr/bin/awk"), reason="awk is no alternative here")
@pytest.mark.parametrize("unconfined", [False, True], ids=["confined", "unconfined"])
@pytest.mark.parametrize("command", ["awk", "script"])
def test_a_plugin_whose_interpreter_is_an_alternative_works_behind_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, unconfined: bool
) -> None:
    seen = Seen(monkeypatch)
    words = ["awk", *INTERACTIVE, "plugin.awk"] if command == "awk" else ["./plugin.awk"]
    root = write_kaged_plugin(tmp_path / "plugins", command=words)
    (root / "plugin.awk").write_text(f"#!/usr/bin/env -S awk {' '.join(INTERACTIVE)}\n{AWK}")
    (root / "plugin.awk").chmod(0o755)

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", grant_all=True, unconfined=unconfined) as host:
            assert await host.call("echo", {}) == {"words": "MADE BY AWK", "ls": "seen" if unconfined else "hidden"}
            (status,) = host.plugins()
            policy = status.confinement.policy
            assert (policy is None) == unconfined and (policy is None or policy.fenced)
            assert len(seen.facts) == (not unconfined)

    run_on("asyncio")(main)
