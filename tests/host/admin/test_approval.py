"""The offer of an MCP server, inspected and approved while its host runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.host.admin import approval, operating
from plugbay.host.catalog.approvals import Approvals
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed
from tests.support.loops import Run
from tests.support.mcp_servers import write_server

MORE = 'TOOLS.append({"name": "more", "description": "New.", "inputSchema": {"type": "object"}})'


def loaded(folder: Path, **options: Any) -> Host:
    return Host.load(folder / "plugins", state_dir=folder / "state", **options)


def test_what_was_seen_is_approved_and_answers_at_once(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            assert host.refusal("srv") is not None
            seen = await approval.inspect(host, "srv")
            assert [(part, each["name"]) for part, each in seen.definitions] == [("tools", "echo")]
            assert not seen.approved_before and seen.to_json()["definitions"]["tools"][0]["name"] == "echo"
            assert host.refusal("srv") is not None, "a look approves nothing"
            assert (await approval.inspect(host, "srv")).digest == seen.digest, "the time is no part of it"
            await approval.approve(host, seen)
            await host.reload("srv")
            assert host.refusal("srv") is None
            assert "echo" in str(host.exports())
            assert (await host.attempt("srv/echo", {"a": 1})).failure is None

    run(main)


def test_another_offer_has_another_digest_and_what_is_new_is_told(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            first = await approval.inspect(host, "srv")
            await approval.approve(host, first)
            write_server(tmp_path / "plugins", "srv", MORE)
            await operating.reload(host, "srv")
            await host.meet("srv")
            assert host.plugins()[0].disabled == ("more",)
            second = await approval.inspect(host, "srv")
            assert second.digest != first.digest and second.approved_before
            assert [change.word for change in second.changes] == ["new"]
            await approval.approve(host, second)
            await host.reload("srv")
            assert (await host.attempt("srv/more", {})).failure is None
            assert host.plugins()[0].disabled == ()

    run(main)


def test_what_somebody_else_has_approved_meanwhile_is_taken_over_by_a_reload(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            with pytest.raises(CallFailed, match="approved"):
                await operating.restart(host, "srv")
            Approvals(tmp_path / "state").save("srv", (await approval.inspect(host, "srv")).candidate)
            await operating.reload(host, "srv")
            assert (await host.attempt("srv/echo", {})).failure is None

    run(main)


def test_a_server_that_does_not_start_says_why(tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv", "sys.exit(3)")

    async def main() -> None:
        async with loaded(tmp_path) as host:
            with pytest.raises(CallFailed):
                await approval.inspect(host, "srv")

    run(main)


BROKER = """\
[broker]
url = "nats://127.0.0.1:1"
topics = ["a.>"]
token_env = "TOKEN_OF_THE_BROKER"
"""


def test_a_look_does_not_join_the_hosts_of_other_machines(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_server(tmp_path / "plugins", "srv")
    (tmp_path / "plugbay.toml").write_text(BROKER)
    monkeypatch.setenv("TOKEN_OF_THE_BROKER", "secret")

    async def main() -> None:
        async with loaded(tmp_path, config=tmp_path / "plugbay.toml") as host:
            assert host.broker is not None
            monkeypatch.delenv("TOKEN_OF_THE_BROKER")  # without it nobody is joined, and that would be an error
            assert (await approval.inspect(host, "srv")).definitions

    run(main)
