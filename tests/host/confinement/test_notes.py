"""Notes about confinement: a downgrade, a refused connection, an out-of-memory kill. Real processes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Host
from plugbay.host.confinement import notes as module
from plugbay.host.confinement.notes import describe_oom, describe_state_excess, egress_listener
from plugbay.host.journal import Journal
from plugbay.process.sandbox.egress.decision import Decision
from plugbay.process.status import ExitStatus, OutOfMemory
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run, run_on
from tests.support.machine import needs_cgroups
from tests.support.patience import until

EATS = """
def tool(name, params, m):
    eaten = bytearray(400 << 20)
    for at in range(0, len(eaten), 4096):
        eaten[at] = 1
    reply(m, len(eaten))
"""

CONNECTS = """
import socket
def tool(name, params, m):
    with socket.create_connection(("127.0.0.1", 3128), 5) as proxy:
        proxy.sendall(b"CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n")
        reply(m, proxy.recv(100).decode())
"""


def loaded(root: Path, toml: str = "", **options: Any) -> Host:
    config = root.parent / "plugbay.toml"
    config.write_text(toml)
    return Host.load(root, config=config, **{"grant_all": True, **options})


def notes(host: Host, kind: str) -> list[str]:
    return [note.text for note in host.journal.recent("p") if note.kind == kind]


@pytest.mark.parametrize(
    ("toml", "options", "reason"),
    [
        ('[plugins.p.sandbox]\noff = "it is ours"', {}, "it is ours"),
        ("", {"unconfined": True}, "--no-sandbox"),
        ("", {}, None),
    ],
)
def test_an_unconfined_plugin_is_noted_counted_and_logged(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, toml: str, options: dict[str, Any], reason: str | None
) -> None:
    root = write_kaged_plugin(tmp_path)

    async def main() -> None:
        with caplog.at_level(logging.WARNING):
            async with loaded(root, toml, **options) as host:
                await host.call("echo", {})
                text = f"it runs unconfined, with all rights of this user: {reason}"
                assert notes(host, "unconfined") == ([] if reason is None else [text])
                assert host.plugins()[0].counters.get("unconfined", 0) == int(reason is not None)
                assert (text in caplog.text) is (reason is not None)

    run(main)


@needs_cgroups
def test_an_end_for_want_of_memory_is_the_plugins_and_has_its_name(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, body=EATS)

    async def main() -> None:
        async with loaded(root, '[plugins.p.sandbox]\nlimits = { memory = "256 MiB" }') as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {})
            assert "used more than its 256 MiB of memory" in caught.value.failure.detail["cause"]
            assert "limits = { memory" in caught.value.failure.detail["hint"]
            await until(lambda: "out_of_memory" in host.journal.counts("p"))
        async with loaded(root, '[plugins.p.sandbox]\nlimits = { memory = "600 MiB" }') as host:
            assert await host.call("echo", {}) == 400 << 20
            assert "out_of_memory" not in host.journal.counts("p")

    run(main)


def test_a_refused_connection_is_noted_with_its_reason(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, body=CONNECTS, capabilities=["net:api.example:443"])

    async def main() -> None:
        async with loaded(root) as host:
            assert " 403 " in await host.call("echo", {})
            assert host.plugins()[0].counters["egress_refused"] == 1
            (text,) = notes(host, "egress_refused")
            assert text.startswith("other.example:443: the network is not granted for other.example")

    run(main)


def test_the_hint_of_a_refusal_opens_the_refused_connection(run: Run, tmp_path: Path) -> None:
    wanted = ["net:api.example:443", "net:other.example:443"]
    asking = write_kaged_plugin(tmp_path / "asking", body=CONNECTS, capabilities=wanted)
    silent = write_kaged_plugin(tmp_path / "silent", body=CONNECTS, capabilities=wanted[:1])
    granted, opened = '[plugins.p]\ngrants = ["net:api.example:443"{}]\n', "[plugins.p.sandbox]\nnetwork = [{}]\n"
    ways = [
        (asking, "; grant net:other.example:443", granted.format(', "net:other.example:443"')),
        (silent, '; add "other.example:443" to network', granted.format("") + opened.format('"other.example:443"')),
    ]

    async def main() -> None:
        for root, advice, followed in ways:
            async with loaded(root, granted.format(""), grant_all=False) as host:
                await host.call("echo", {})
                assert advice in notes(host, "egress_refused")[0]
            async with loaded(root, followed, grant_all=False) as host:
                await host.call("echo", {})
                assert "is not granted" not in "".join(notes(host, "egress_refused"))

    run(main)


def test_a_granted_path_that_does_not_exist_is_noted(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, capabilities=[f"read:fs:{tmp_path}/gone"])

    async def main() -> None:
        async with loaded(root) as host:
            await host.call("echo", {})
            assert notes(host, "sandbox_not_shown") == [f"it may read {tmp_path}/gone, but that path does not exist"]

    run(main)


@pytest.mark.parametrize(("most", "noted"), [(1000, True), (4096, False), (None, False)])
def test_fewer_open_files_than_a_plugin_was_to_have_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None, noted: bool
) -> None:
    monkeypatch.setattr(module, "most_open_files", lambda: most)
    root = write_kaged_plugin(tmp_path)

    async def main() -> None:
        async with loaded(root) as host:
            await host.call("echo", {})
            text = "it may have 1,000 open files instead of 4,096: the hard limit of the host is lower"
            assert notes(host, "fewer_open_files") == ([text] if noted else [])

    run_on("asyncio")(main)


def test_a_connection_that_was_allowed_is_nothing_to_note() -> None:
    journal = Journal()
    told = egress_listener(journal)
    told(Decision("p", "a.example", 443, True, address="192.0.2.1"))
    assert journal.counts("p") == {}
    told(Decision("p", "", 0, False, "the request cannot be read"))
    told(Decision("p", "a.example", 443, False, "not public", "10.0.0.1"))
    assert [note.text for note in journal.recent("p")] == [
        "the request cannot be read",
        "a.example:443: not public (10.0.0.1)",
    ]


@pytest.mark.parametrize(
    ("status", "who"),
    [(ExitStatus(signal=9), "it was killed"), (ExitStatus(code=1), "one of its processes was killed")],
)
def test_an_out_of_memory_kill_names_the_limit(status: ExitStatus, who: str) -> None:
    said, advice = describe_oom(status, OutOfMemory.OWN_LIMIT, 256 << 20, 1 << 30)
    assert said == f"{who} because it used more than its 256 MiB of memory"
    assert "limits = { memory" in advice


@pytest.mark.parametrize("memory", [None, 256 << 20])
@pytest.mark.parametrize(
    ("oom", "around", "text"),
    [
        (OutOfMemory.AROUND, None, "it was killed because the machine ran out of memory"),
        (
            OutOfMemory.LIKELY,
            300 << 20,
            "it was probably killed because the host's control group, which has 300 MiB, ran out of memory",
        ),
    ],
)
def test_an_out_of_memory_kill_around_a_plugin_does_not_blame_its_own_limit(
    oom: OutOfMemory, around: int | None, text: str, memory: int | None
) -> None:
    said, advice = describe_oom(ExitStatus(signal=9), oom, memory, around)
    assert said == text and advice.startswith("give the host more memory")


def test_a_kill_for_too_much_state_names_the_folder_and_a_remedy() -> None:
    said, advice = describe_state_excess("/var/p", "it has more than 5 bytes")
    assert said == "it was killed because its own folder /var/p is too full: it has more than 5 bytes"
    assert "delete" in advice and "limits = { state" in advice
