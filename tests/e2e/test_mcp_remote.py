"""MCP servers on the network as plugins, with real processes and the official SDK's server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.host.catalog.approvals import Approvals
from plugbay.host.config import config as config_files
from plugbay.host.config import settings
from plugbay.host.inbound.questions import Question
from plugbay.link.recording import Frame
from plugbay.model.errors import Code, Failure
from tests.process.sandbox.egress.helpers import certificate
from tests.support.http_servers import response, running_server, scripted_server, sdk_server
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.ports import free_port
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone

KEY = "sesame-sesame"


@pytest.fixture(scope="module")
def streaming() -> Iterator[str]:
    with sdk_server() as url:
        yield url


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with sdk_server("json") as url:
        yield url


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with sdk_server(f"key={KEY}") as url:
        yield url


def host_of(folder: Path, url: str, more: str = "", **options: Any) -> Host:
    """A host of one remote server `far`, declared in plugbay.toml."""
    file = folder / "plugbay.toml"
    file.write_text(f"[mcp.far]\nurl = {json.dumps(url)}\n{more}\n")
    return Host([], config_files.load(file), state_dir=folder / "state", **options)


async def approve(folder: Path, url: str, more: str = "") -> None:
    async with host_of(folder, url, more, trusted=("far",)) as host:
        assert await host.meet("far") == {}
        Approvals(folder / "state").save("far", host.runtime_exports.candidate("far"))


def said(result: Mapping[str, Any]) -> Any:
    return result["content"][0]["text"]


async def failure_of(host: Host, name: str, given: Any = None, **options: Any) -> Failure:
    failure = (await host.attempt(name, given, **options)).failure
    assert failure is not None
    return failure


# The transport.


@requirement("mcp:remote-transport")
@pytest.mark.parametrize("kind", first_alone(["streaming", "plain"]))
def test_a_server_on_the_network_is_called_like_a_local_one(
    run: Run, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(kind)

    async def main() -> None:
        async with host_of(tmp_path, url, grant_all=True) as host:
            assert await host.meet("far") == {}
            hello = host.runtime_exports.hello("far")
            assert hello is not None and hello["server"]["version"] == "3.1.0"
            assert said(await host.call("far/add", {"a": 1, "b": 2})) == "3"
            several = await asyncio.gather(*(host.call("far/add", {"a": n, "b": 0}) for n in range(20)))
            assert [said(each) for each in several] == [str(n) for n in range(20)]
            assert (await host.call("far/one"))["contents"][0]["text"] == "words"
            (status,) = host.plugins()
            assert (status.state, status.spec.url) == ("idle" if not status.pid else status.state, url)

    run(main)


@exhaustive
@requirement("mcp:remote-transport")
def test_a_server_without_sessions_is_called_too(run: Run, tmp_path: Path) -> None:
    with sdk_server("stateless", "json") as url:

        async def main() -> None:
            async with host_of(tmp_path, url, grant_all=True) as host:
                assert said(await host.call("far/add", {"a": 1, "b": 2})) == "3"

        run(main)


EVERYTHING = Path(__file__).parents[2] / ".peers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


@exhaustive
@requirement("mcp:remote-transport")
def test_the_official_server_in_typescript_is_called_too(run: Run, tmp_path: Path) -> None:
    port = free_port()
    with running_server(["node", str(EVERYTHING), "streamableHttp"], port, PORT=str(port)) as url:

        async def main() -> None:
            async with host_of(tmp_path, url, grant_all=True) as host:
                assert said(await host.call("far/echo", {"message": "hi"}, timeout=PATIENCE)) == "Echo: hi"
                long = {"duration": 1, "steps": 2}
                assert "completed" in said(await host.call("far/trigger-long-running-operation", long))

        run(main)


@requirement("mcp:remote-modern")
def test_the_modern_era_has_no_session_and_repeats_the_message_in_headers(run: Run, tmp_path: Path, plain: str) -> None:
    async def main() -> None:
        async with host_of(tmp_path, plain, 'era = "modern"', grant_all=True) as host:
            assert said(await host.call("far/add", {"a": 1, "b": 2})) == "3"
            hello = host.runtime_exports.hello("far")
            assert hello is not None and hello["protocol_version"] == "2026-07-28"
            seen = json.loads(said(await host.call("far/headers")))
            assert (seen["mcp-method"], seen["mcp-name"]) == ("tools/call", "headers")
            assert "mcp-session-id" not in seen

    run(main)


@requirement("mcp:remote-cancel")
@pytest.mark.parametrize("era", first_alone(["handshake", "modern"]))
def test_a_cancelled_call_is_cancelled_on_the_server(run: Run, tmp_path: Path, era: str) -> None:
    with sdk_server() as url:

        async def main() -> None:
            async with host_of(tmp_path, url, f'era = "{era}"', grant_all=True) as host:
                assert said(await host.call("far/cancelled")) == "0"
                assert (await failure_of(host, "far/slow", timeout=1.0)).code == Code.TIMEOUT
                seen = "0"
                while seen == "0":
                    seen = said(await host.call("far/cancelled"))
                assert seen == "1"

        run(main)


@requirement("mcp:remote-asks")
def test_questions_progress_and_list_changes_reach_the_host(run: Run, tmp_path: Path) -> None:
    asked: list[Question] = []

    async def person(question: Question) -> dict[str, Any]:
        asked.append(question)
        return {"action": "accept", "content": {"sure": True}}

    with sdk_server() as url:

        async def main() -> None:
            async with host_of(tmp_path, url, grant_all=True, questions=person) as host:
                assert said(await host.call("far/ask")) == "accept sure=True"
                assert len(asked) == 1
                tap = host.tap("far")
                await host.call("far/slow", {"seconds": 0})
                frames = [item.value for item in tap.rest() if isinstance(item, Frame)]
                assert [f["params"]["message"] for f in frames if f.get("method") == "notifications/progress"] == [
                    "started",
                    "done",
                ]
                await host.call("far/grow")
                await until(lambda: "far/fresh" in host.exports())

        run(main)


@requirement("mcp:remote-session")
def test_a_lost_session_is_replaced_and_the_offer_is_compared_again(run: Run, tmp_path: Path) -> None:
    port = free_port()

    async def main() -> None:
        with sdk_server(port=port) as url:
            await approve(tmp_path, url)
            host = host_of(tmp_path, url)
            await host.start()
            assert said(await host.call("far/add", {"a": 1, "b": 2})) == "3"
            assert host.runtime_exports.drift("far") == []
        with sdk_server("grown", port=port):
            assert said(await host.call("far/add", {"a": 2, "b": 2}, timeout=PATIENCE)) == "4"
            (status,) = host.plugins()
            assert (status.state, status.generation) == ("running", 1)
            await until(lambda: bool(host.runtime_exports.drift("far")))
            assert (await failure_of(host, "far/fresh")).code == Code.CAPABILITY_NOT_ALLOWED
            await host.stop()

    run(main)


@exhaustive
@requirement("mcp:remote-session")
def test_a_server_that_greets_otherwise_after_a_lost_session_is_started_again(run: Run, tmp_path: Path) -> None:
    port = free_port()

    async def main() -> None:
        with sdk_server("json", port=port) as url:
            host = host_of(tmp_path, url, grant_all=True)
            await host.start()
            assert said(await host.call("far/add", {"a": 1, "b": 2})) == "3"
        with sdk_server("version=4.0.0", port=port):
            outcome = await host.attempt("far/add", {"a": 1, "b": 2})
            if outcome.failure is not None:  # the stream of the server may have ended it before
                assert (outcome.failure.code, outcome.failure.retryable) == (Code.UNAVAILABLE, True)
                assert "ended the session" in outcome.failure.message
            await until(lambda: host.plugins()[0].generation == 2 or host.plugins()[0].state == "idle")
            assert said(await host.call("far/add", {"a": 2, "b": 2}, timeout=PATIENCE)) == "4"
            (status,) = host.plugins()
            assert (status.state, status.generation, status.spec.version) == ("running", 2, "4.0.0")
            await host.stop()

    run(main)


# Credentials.


@requirement("mcp:remote-headers")
def test_headers_are_sent_and_their_values_are_never_shown(run: Run, tmp_path: Path, guarded: str) -> None:
    more = 'headers = { Authorization = "Bearer secret://token", X-Region = "north" }'

    async def main() -> None:
        settings.save_secrets(tmp_path / "state", "far", {"token": KEY})
        async with host_of(tmp_path, guarded, more, grant_all=True) as host:
            tap = host.tap("far")
            seen = json.loads(said(await host.call("far/headers")))
            assert (seen["authorization"], seen["x-region"]) == ("Bearer ***", "north")
            assert KEY not in repr([item.value for item in tap.rest() if isinstance(item, Frame)])
            (status,) = host.plugins()
            assert KEY not in repr(status)
            assert status.pid is not None
            assert KEY.encode() not in Path(f"/proc/{status.pid}/cmdline").read_bytes()
        settings.save_secrets(tmp_path / "state", "far", {"token": "wrong-wrong"})
        async with host_of(tmp_path, guarded, more, grant_all=True) as host:
            failure = await failure_of(host, "far/add", {"a": 1, "b": 2})
            assert failure.code == Code.CAPABILITY_NOT_ALLOWED
            assert "refused the credentials in headers" in failure.message
            assert "wrong-wrong" not in repr(failure)

    run(main)


@exhaustive
@requirement("mcp:remote-headers")
def test_a_variable_in_a_header_is_resolved_at_the_start(
    run: Run, tmp_path: Path, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = 'headers = { Authorization = "Bearer ${FAR_TOKEN}" }'

    async def main() -> None:
        async with host_of(tmp_path, guarded, more, grant_all=True) as host:
            failure = await failure_of(host, "far/add", {"a": 1, "b": 2})
            assert failure.code == Code.LAUNCH_FAILED and "FAR_TOKEN" in failure.message
        monkeypatch.setenv("FAR_TOKEN", KEY)
        async with host_of(tmp_path, guarded, more, grant_all=True) as host:
            assert json.loads(said(await host.call("far/headers")))["authorization"] == "Bearer ***"

    run(main)


# Approval.


@requirement("mcp:remote-approval")
def test_the_offer_of_a_remote_server_is_pinned_and_another_url_is_pending_again(
    run: Run, tmp_path: Path, plain: str
) -> None:
    with sdk_server() as url:

        async def main() -> None:
            async with host_of(tmp_path, url) as host:
                assert (await failure_of(host, "far/add")).code == Code.CAPABILITY_NOT_ALLOWED
            await approve(tmp_path, url)
            async with host_of(tmp_path, url) as host:
                assert "far/add" in host.exports()
                await host.call("far/grow")
                await until(lambda: bool(host.runtime_exports.drift("far")))
                assert (await failure_of(host, "far/fresh")).code == Code.CAPABILITY_NOT_ALLOWED
                assert said(await host.call("far/add", {"a": 1, "b": 1})) == "2"
            async with host_of(tmp_path, plain) as host:
                failure = await failure_of(host, "far/add", {"a": 1, "b": 1})
                assert failure.code == Code.CAPABILITY_NOT_ALLOWED and "approve far" in failure.detail["hint"]
            async with host_of(tmp_path, url, 'headers = { X-Other = "1" }') as host:
                assert (await failure_of(host, "far/add")).code == Code.CAPABILITY_NOT_ALLOWED

        run(main)


# Confinement.


@requirement("mcp:remote-confined")
def test_a_confined_bridge_reaches_its_server_and_nothing_else(run: Run, tmp_path: Path, plain: str) -> None:
    more = "[plugins.far.sandbox]\non = true"

    async def main() -> None:
        async with host_of(tmp_path, plain, more, grant_all=True) as host:
            (status,) = host.plugins()
            assert str(status.confinement) == "confined"
            assert status.confinement.policy is not None
            endpoints = status.confinement.policy.network.endpoints
            assert [(each.host, each.port) for each in endpoints] == [("127.0.0.1", int(plain.split(":")[2][:-4]))]
            assert said(await host.call("far/add", {"a": 1, "b": 2}, timeout=PATIENCE)) == "3"

    run(main)


CONFINED = "[plugins.far.sandbox]\non = true\n"


@requirement("mcp:remote-refused")
def test_a_confined_bridge_says_that_its_server_is_not_granted(run: Run, tmp_path: Path, plain: str) -> None:
    """The URL of the bridge is changed behind the declaration, which grants the declared server only."""
    declared, at = f"http://127.0.0.1:{free_port()}/mcp", plain.removeprefix("http://").removesuffix("/mcp")
    elsewhere = f'{CONFINED}[plugins.far.env]\nPLUGBAY_MCP_URL = "{plain}"\n'
    granted = elsewhere.replace("on = true", f'network = ["{at}"]')

    async def main() -> None:
        async with host_of(tmp_path, declared, elsewhere, grant_all=True) as host:
            failure = (await host.meet("far"))["far"]
            assert failure.code == Code.CAPABILITY_NOT_ALLOWED and not failure.retryable
            assert f"the network is not granted for 127.0.0.1, port {at.split(':')[1]}" in failure.message
            assert f'"{at}"' in failure.detail["hint"] and "plugbay.toml" in failure.detail["hint"]
            assert host.journal.counts("far")["egress_refused"] >= 1
        async with host_of(tmp_path, declared, granted, grant_all=True) as host:
            assert said(await host.call("far/add", {"a": 1, "b": 2}, timeout=PATIENCE)) == "3"

    run(main)


@requirement("mcp:remote-refused")
def test_a_confined_bridge_follows_no_redirect_to_another_server(run: Run, tmp_path: Path, plain: str) -> None:
    async def redirect(writer: asyncio.StreamWriter, *_: object) -> None:
        writer.write(response("307 Elsewhere", location=plain))

    async def main() -> None:
        async with scripted_server(redirect) as url, host_of(tmp_path, url, CONFINED, grant_all=True) as host:
            failure = (await host.meet("far"))["far"]
            assert (
                failure.code == Code.UNAVAILABLE and f"redirects to {plain}, which is not followed" in failure.message
            )
            assert "declare that URL" in failure.detail["hint"]
            assert host.journal.counts("far").get("egress_refused", 0) == 0
        async with host_of(tmp_path, plain, CONFINED, grant_all=True) as host:
            assert said(await host.call("far/add", {"a": 1, "b": 2}, timeout=PATIENCE)) == "3"

    run(main)


@requirement("mcp:remote-tls", "mcp:remote-confined")
@pytest.mark.parametrize("confined", first_alone([True, False]))
def test_a_server_with_tls_is_reached_if_its_certificate_is_trusted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confined: bool
) -> None:
    """Confined, the bridge asks the proxy of its sandbox for a tunnel."""
    whole, public = certificate("localhost")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(public)
    (tmp_path / "server.pem").write_text(whole)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    more = f'[plugins.far.sandbox]\non = true\nread = ["{trusted}"]' if confined else ""

    async def main(url: str) -> None:
        async with host_of(tmp_path, url, more, grant_all=True) as host:
            failure = (await host.meet("far"))["far"]
            assert failure.code == Code.UNAVAILABLE and "certificate verify failed" in failure.message
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        async with host_of(tmp_path, url, more, grant_all=True) as host:
            assert said(await host.call("far/add", {"a": 1, "b": 2}, timeout=PATIENCE)) == "3"

    with sdk_server("json", f"tls={tmp_path}/server.pem") as url:
        run(partial(main, url.replace("http://127.0.0.1", "https://localhost")))


# Failures.


@requirement("mcp:remote-errors")
def test_a_url_that_is_no_server_says_what_it_is_and_what_to_do(run: Run, tmp_path: Path, plain: str) -> None:
    origin = plain.removesuffix("/mcp")
    cases = {
        f"{origin}/page": (Code.MALFORMED_RESPONSE, "a web page instead of MCP", "path of the URL"),
        f"{origin}/nothing": (Code.NOT_FOUND, "status 404", "path of the URL"),
        f"http://127.0.0.1:{free_port()}/mcp": (Code.UNAVAILABLE, "Connection refused", "the server and the proxy"),
    }

    async def main() -> None:
        for url, (code, text, hint) in cases.items():
            async with host_of(tmp_path, url, grant_all=True) as host:
                failure = (await host.meet("far"))["far"]
                assert (failure.code, failure.plugin) == (code, "far")
                assert text in failure.message and hint in failure.detail["hint"]

    run(main)


@exhaustive
@requirement("mcp:remote-errors")
def test_a_server_that_fails_during_the_greeting_is_not_quarantined_at_once(run: Run, tmp_path: Path) -> None:
    async def refuse(writer: asyncio.StreamWriter, *_: object) -> None:
        writer.write(response("503 Busy", b"later", retry_after="7"))

    async def main() -> None:
        async with scripted_server(refuse) as url, host_of(tmp_path, url, grant_all=True) as host:
            failure = (await host.meet("far"))["far"]
            assert (failure.code, failure.retryable, failure.retry_after_ms) == (Code.UNAVAILABLE, True, 7000)
            (status,) = host.plugins()
            assert status.state in ("backoff", "idle")

    run(main)
