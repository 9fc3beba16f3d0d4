"""One attempt: its scratch folder, its secrets and its token, and that none of them is left behind or leaked."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from plugbay import Host
from plugbay.host.config import settings as settings_files
from plugbay.host.invocations.attempt import TIMER_ROUNDING, USER, is_over
from plugbay.host.invocations.resources import Gateway
from plugbay.host.ports import InvocationRecord, ResumeState
from plugbay.host.recording.redaction import EXPIRED_TOKENS
from plugbay.host.records import MemoryCheckpoints, MemoryInvocationLog, MemoryTokens
from plugbay.host.request import ExportBinding, Policy
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code
from tests.support.invoking import COUNTS, SCRATCH, host_of, raw_host_of, records, rooms, with_host
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

SECRET = "s3cr3t/ü+value-0123"
EVERYTHING = {
    "network": "egress",
    "filesystem": "scratch",
    "gateway_api_scopes": ["chains:read", "runs:write"],
    "secret_slots": ["key"],
}
BOUND = ExportBinding("bind_1", secrets={"key": SECRET})

# The room.


@requirement("vai:host-scratch")
def test_an_invocation_has_a_room_while_it_runs_and_only_if_that_is_granted(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        room = body["context"]["scratch_dir"]
        mode = None if room is None else oct(os.stat(room).st_mode & 0o777)
        found = None if room is None else os.listdir(room)
        if room is not None:
            open(room + "/file", "w").close()
        succeed(m, output([room, mode, found]))
    """
    root = write_vai_plugin(
        tmp_path, body, [export(permissions=SCRATCH), export("u"), export("v", permissions={"filesystem": "assets_ro"})]
    )

    async def main(host: Host) -> None:
        room, mode, found = (await host.call("t", {}))["structured_output"]
        assert (mode, found) == ("0o700", []) and Path(room).is_relative_to(tmp_path / "state")
        await until(lambda: not Path(room).exists())
        assert (await host.call("u", {}))["structured_output"] == [None, None, None]
        assert (await host.call("v", {}))["structured_output"] == [None, None, None]

    with_host(run, host_of(root), main)


@requirement("vai:host-scratch-quota")
@pytest.mark.parametrize("stays", [True, False])
def test_a_room_that_gets_too_full_ends_its_invocation(run: Run, tmp_path: Path, stays: bool) -> None:
    body = f"""
    def tool(body, m):
        with open(body["context"]["scratch_dir"] + "/file", "wb") as file:
            file.write(os.urandom(1 << 20))
        {"cancels[m['id']].wait()" if stays else "succeed(m, output({}))"}
    """
    root = write_vai_plugin(tmp_path, body, [export(permissions=SCRATCH)])
    host = host_of(root)
    host.invocations._resources.scratch.quota = 100_000

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.failure is not None and "too full" in result.failure.message
        (record,) = result.invocations
        assert (record.status, record.error_code) == ("failed", "invocation.scratch_quota_exceeded")
        assert record.status_reason == "scratch_quota_exceeded"
        await until(lambda: not rooms(root))

    with_host(run, host, main)


def test_a_hostile_room_is_gone_afterwards_and_nothing_outside_of_it(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        os.chdir(body["context"]["scratch_dir"])
        os.symlink(body["input"]["outside"], "link")
        for n in range(40):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        open("file", "w").close()
        os.chmod(".", 0)
        succeed(m, output({}))
    """
    root = write_vai_plugin(tmp_path, body, [export(permissions=SCRATCH)])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")

    async def main(host: Host) -> None:
        await host.invoke("t", {"outside": str(outside)})
        await until(lambda: not rooms(root))

    with_host(run, host_of(root), main)
    assert (outside / "precious").read_text() == "mine"


# Secrets.

LEAKS = """
def forms(text):
    data = text.encode()
    yield text
    yield base64.b64encode(b"user:" + data).decode()
    yield base64.urlsafe_b64encode(data).decode()
    yield urllib.parse.quote(text, safe="")

def tool(body, m):
    secrets = [*body["secrets"].values(), body["context"]["gateway"]["delegation_token"] or ""]
    said = [form for secret in secrets if secret for form in forms(secret)]
    for form in said:
        print("stderr", form, file=sys.stderr, flush=True)
        event(m, message=form, deep={form: [form]})
        send(type="event", request_id="req_unknown_" + form[:3], event={"type": "x", "m": form})
    how = body["input"]["how"]
    if how == "succeed":
        succeed(m, output({"said": said}, content=[{"type": "text", "text": " ".join(said)}]))
    elif how == "fail":
        end(m, "failed", code="acme." + said[0], message=" ".join(said), result={"said": said})
    elif how == "refuse":
        refuse(m, "protocol.internal", " ".join(said))
    elif how == "garble":
        send(type="response", id=m["id"], ok=True, body={"status": " ".join(said)})
    elif how == "crash":
        os._exit(3)
"""


def said_anywhere(text: str, secret: str) -> list[str]:
    """The forms of a secret that are in a text."""
    data = secret.encode()
    forms = [secret, base64.b64encode(data).decode().rstrip("="), quote(secret, safe=""), json.dumps(secret)[1:-1]]
    shifted = base64.b64encode(b"user:" + data).decode().rstrip("=")[8:-1]
    return [form for form in [*forms, shifted] if form in text]


@requirement("vai:host-redaction")
@pytest.mark.parametrize("execution_class", ["isolated", "worker"])
@pytest.mark.parametrize("how", ["succeed", "fail", "refuse", "garble", "crash"])
def test_a_secret_and_a_token_are_told_to_nobody_however_the_plugin_says_them(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, execution_class: str, how: str
) -> None:
    own = {"effect_class": "unknown"}
    root = write_vai_plugin(tmp_path, LEAKS, [export(permissions=EVERYTHING, execution_class=execution_class, own=own)])
    heard: list[Any] = []
    tokens: list[str] = []

    class Tokens(MemoryTokens):
        async def issue(self, claims: Any) -> str:
            tokens.append(await super().issue(claims))
            return tokens[-1]

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", Tokens())
        result = await host.invoke("t", {"how": how}, binding=BOUND, on_progress=heard.append)
        heard.extend((result.value(), result.failure, result.invocations, result.failure and result.failure.to_json()))
        heard.extend((records(host), [item.to_json() for item in records(host)], host.journal.recent("acme/p")))
        heard.extend(host.call_log.records)  # type: ignore[attr-defined]
        assert len(tokens) == 1 and result.status == ("succeeded" if how == "succeed" else "failed")

    with caplog.at_level(logging.DEBUG):
        with_host(run, host_of(root, log_dir=tmp_path / "logs"), main)
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    files = "".join(path.read_text() for path in (tmp_path / "state").rglob("*") if path.is_file())
    told = str(heard) + json.dumps([str(item) for item in heard]) + caplog.text + logs + files
    assert "***" in str(heard) and logs.count("***") >= 8
    assert said_anywhere(told, SECRET) == [] and said_anywhere(told, tokens[0]) == []


CUTS = """
def tool(body, m):
    secret, how = body["secrets"]["key"], body["input"]["how"]
    if how == "line":
        print("x" * (8192 - 20) + secret, file=sys.stderr, flush=True)
    elif how == "unfinished":
        os.write(2, secret[:-1].encode())
    elif how == "type":
        send(type="x" * 80 + secret)
    elif how == "status":
        respond(m, status="x" * 80 + secret)
    elif how == "code":
        end(m, "failed", code="x" * 180 + secret)
    elif how == "frame":
        raw(b"Content-Length: 900\\r\\n\\r\\n" + (b"x" * 180 + secret.encode()).ljust(900))
    elif how == "hex":
        end(m, "failed", message=secret.encode().hex())
    os._exit(3)
"""
"""A secret where whoever quotes what a plugin says stops in the middle of it."""


@requirement("vai:host-redaction")
@pytest.mark.parametrize("how", ["line", "unfinished", "type", "status", "code", "frame", "hex"])
def test_not_even_a_part_of_a_secret_is_told_where_a_quotation_ends(run: Run, tmp_path: Path, how: str) -> None:
    secret = "sk-live-0123456789-abcdefghij-klm"
    asked = {"secret_slots": ["key"]}
    root = write_vai_plugin(tmp_path, CUTS, [export(permissions=asked, own={"effect_class": "unknown"})])
    heard: list[Any] = []

    async def main(host: Host) -> None:
        result = await host.invoke("t", {"how": how}, binding=ExportBinding(secrets={"key": secret}))
        assert result.failure is not None and "***" in str(result.failure)
        heard.extend((result, records(host), host.journal.recent("acme/p")))

    with_host(run, host_of(root, log_dir=tmp_path / "logs"), main)
    told = str(heard) + "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert secret[:11] not in told and secret.encode().hex()[:22] not in told


def test_a_token_is_not_told_while_it_can_be_used_however_many_others_were_used_since(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        if body["input"].get("long"):
            event(m)
            while not os.path.exists("enough"):
                time.sleep(0.01)
        succeed(m, output({"token": body["context"]["gateway"]["delegation_token"]}))
    """
    limits: dict[str, Any] = {"execution_class": "worker", "max_concurrency": 2}
    root = write_vai_plugin(tmp_path, body, [export(permissions=EVERYTHING, **limits)])

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", MemoryTokens())
        begun = asyncio.Event()
        fields: dict[str, Any] = {"binding": BOUND, "on_progress": lambda _: begun.set()}
        long = asyncio.ensure_future(host.invoke("t", {"long": True}, **fields))
        await begun.wait()
        for _ in range(EXPIRED_TOKENS + 1):
            (await host.invoke("t", {}, binding=BOUND)).value_or_raise()
        (root / "enough").touch()
        assert (await long).value_or_raise()["structured_output"] == {"token": "***"}

    with_host(run, host_of(root), main)


def test_without_the_guard_the_same_plugin_would_tell_everything(run: Run, tmp_path: Path) -> None:
    """The same child with secrets that the host does not know to be any: they are in every place it looks."""
    root = write_vai_plugin(tmp_path, LEAKS.replace('body["secrets"]', 'body["input"]["notes"]'))
    heard: list[Any] = []

    async def main(host: Host) -> None:
        result = await host.invoke("t", {"how": "succeed", "notes": {"key": SECRET}}, on_progress=heard.append)
        assert said_anywhere(str(result.value()), SECRET)

    with_host(run, host_of(root, log_dir=tmp_path / "logs"), main)
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert said_anywhere(str(heard), SECRET) and said_anywhere(logs, SECRET)


class Stubborn(MemoryTokens):
    """Revokes nothing, and says of what."""

    def __init__(self) -> None:
        super().__init__()
        self.issued: list[str] = []

    async def issue(self, claims: Any) -> str:
        self.issued.append(await super().issue(claims))
        return self.issued[-1]

    async def revoke(self, token: str) -> None:
        raise ConnectionError(f"{token} stays")


def test_a_token_that_cannot_be_revoked_is_not_told_and_spoils_neither_result_nor_room(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(permissions=EVERYTHING)])
    tokens = Stubborn()

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", tokens)
        result = await host.invoke("t", {}, binding=BOUND)
        assert result.status == "succeeded" and host.journal.counts("acme/p")["token_left"] == 1
        await until(lambda: not rooms(root))
        assert tokens.issued[0] not in f"{result} {records(host)} {host.journal.recent('acme/p')} {caplog.text}"

    with caplog.at_level(logging.DEBUG):
        with_host(run, host_of(root), main)


def test_a_bug_of_the_hosts_own_quotes_no_secret_and_its_record_is_closed(run: Run, tmp_path: Path) -> None:
    class Broken(MemoryCheckpoints):
        async def save(self, execution_id: str, state: ResumeState) -> None:
            if state.summary is not None:
                raise OSError(f"the disk is full of {SECRET}")

    body = "def harness(body, m): succeed(m, {'summary': {'text': 'done'}})"
    root = write_vai_plugin(tmp_path, body, [export("x", "harness", permissions=EVERYTHING)])

    async def main(host: Host) -> None:
        host.invocations._resources.checkpoints = Broken()
        result = await host.invoke("x", {}, binding=BOUND)
        assert result.failure is not None and result.failure.code == Code.INTERNAL
        assert "the disk is full of ***" in result.failure.message
        assert [record.status for record in records(host)] == ["failed"]
        await until(lambda: not rooms(root))

    with_host(run, host_of(root), main)


def test_what_cannot_be_written_down_is_not_begun(run: Run, tmp_path: Path) -> None:
    class Full(MemoryInvocationLog):
        async def opened(self, record: InvocationRecord) -> None:
            raise OSError("no room in the database at db.example")

    root = write_vai_plugin(tmp_path, COUNTS + "\ndef tool(body, m):\n    count()\n", [export()])

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.failure is not None and result.failure.code == Code.UNAVAILABLE
        assert "db.example" not in result.failure.message and result.invocations == ()
        assert not (root / "count").exists() and host.journal.counts("host")["record_refused"] >= 1

    with_host(run, raw_host_of(root, invocation_log=Full()), main)


def test_without_the_token_it_should_have_a_plugin_is_not_asked(run: Run, tmp_path: Path) -> None:
    class Closed(MemoryTokens):
        async def issue(self, claims: Any) -> str:
            raise OSError("db.example is gone")

    own = {"effect_class": "unknown"}
    body = COUNTS + "\ndef tool(body, m):\n    count()\n"
    root = write_vai_plugin(tmp_path, body, [export(permissions=EVERYTHING, own=own)])

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", Closed())
        result = await host.invoke("t", {}, binding=BOUND)
        assert result.failure is not None and result.failure.code == Code.UNAVAILABLE
        assert "db.example" not in result.failure.message and not (root / "count").exists()
        assert [record.status for record in records(host)] == ["retryable_failure"]

    with_host(run, raw_host_of(root), main)


def test_a_cancel_while_the_record_is_being_written_is_not_lost(run: Run, tmp_path: Path) -> None:
    class Slow(MemoryInvocationLog):
        async def opened(self, record: InvocationRecord) -> None:
            await super().opened(record)
            assert host.invocations.cancel(record.invocation_id)
            assert not host.invocations.cancel(record.invocation_id)

    root = write_vai_plugin(tmp_path, COUNTS + "\ndef tool(body, m):\n    count()\n", [export()])
    host = raw_host_of(root, invocation_log=Slow())

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.status == "cancelled" and not (root / "count").exists()
        assert [(record.status, record.status_reason) for record in records(host)] == [("cancelled", USER)]

    with_host(run, host, main)


def test_who_asks_is_told_of_each_attempt_before_anything_is_started(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, "def tool(body, m): end(m, 'retryable_failure')", [export()])
    told: list[InvocationRecord] = []

    async def main(host: Host) -> None:
        result = await host.invoke("t", {}, on_opened=told.append)
        assert [record.invocation_id for record in told] == [record.invocation_id for record in result.invocations]
        assert [record.status for record in told] == [None] * len(result.invocations) and len(told) > 1

    with_host(run, host_of(root), main)


@requirement("vai:host-secrets-pipe")
def test_secrets_and_config_come_over_the_pipe_and_no_other_way(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        secret, config = body["secrets"]["key"], body["config"]["base_url"]
        around = open("/proc/self/cmdline").read() + open("/proc/self/environ").read() + str(dict(os.environ))
        succeed(m, output([len(secret), secret in around, config in around, config]))
    """
    schema = {"type": "object", "required": ["base_url"], "properties": {"base_url": {"type": "string"}}}
    exports = [export(permissions=EVERYTHING, config_schema="schemas/config.json")]
    root = write_vai_plugin(tmp_path, body, exports, schemas={"config": schema})
    settings_files.save_secrets(tmp_path / "state", "acme/p", {"key": SECRET})

    async def main(host: Host) -> None:
        said = (await host.call("t", {}))["structured_output"]
        assert said == [len(SECRET), False, False, "https://acme.example"]

    with_host(run, host_of(root, 'config = { t = { base_url = "https://acme.example" } }'), main)


@requirement("vai:host-config")
def test_a_config_that_does_not_fit_its_schema_never_reaches_the_plugin(run: Run, tmp_path: Path) -> None:
    body = "def tool(body, m):\n    open('asked', 'w').close()\n    succeed(m, output(body['config']))\n"
    schema = {"type": "object", "properties": {"limit": {"type": "integer"}}, "additionalProperties": False}
    exports = [export(config_schema="schemas/config.json"), export("u")]
    root = write_vai_plugin(tmp_path, body, exports, schemas={"config": schema})

    async def main(host: Host) -> None:
        for name, config in (("t", {"limit": "ten"}), ("t", {"other": 1}), ("u", {"limit": 1})):
            result = await host.invoke(name, {}, binding=ExportBinding(config=config))
            assert result.failure is not None and result.failure.code == Code.LAUNCH_FAILED
            assert result.invocation is not None and result.invocation.error_code == "binding.invalid_config"
        assert not (root / "asked").exists()
        result = await host.invoke("t", {}, binding=ExportBinding(config={"limit": 10}))
        assert result.value()["structured_output"] == {"limit": 10}

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-secret-length")
def test_a_secret_too_short_to_be_kept_secret_is_refused(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(permissions=EVERYTHING)])

    async def main(host: Host) -> None:
        result = await host.invoke("t", {}, binding=ExportBinding(secrets={"key": "12345"}))
        assert result.invocation is not None and result.invocation.error_code == "binding.secret_too_short"
        assert (await host.invoke("t", {}, binding=ExportBinding(secrets={"key": "123456"}))).status == "succeeded"

    with_host(run, host_of(root), main)


# What it may do.


@requirement("vai:host-permissions")
def test_what_is_not_granted_is_not_given_and_the_record_says_so(run: Run, tmp_path: Path) -> None:
    body = "def tool(body, m): succeed(m, output([body['context'], body['secrets']]))"
    root = write_vai_plugin(tmp_path, body, [export(permissions=EVERYTHING)])

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", MemoryTokens())
        result = await host.invoke("t", {}, binding=BOUND)
        context, secrets = result.value_or_raise()["structured_output"]
        assert context["permissions"] == {"network": "egress", "filesystem": "none"}
        assert context["scratch_dir"] is None and secrets == {}
        assert context["gateway"]["scopes"] == ["runs:write"]
        (record,) = result.invocations
        assert record.narrowed and record.permissions == {
            "network": "egress",
            "filesystem": "none",
            "gateway_api_scopes": ["runs:write"],
            "secret_slots": [],
        }

    with_host(run, host_of(root, grant_all=False, grants=["network", "scope=runs:write"]), main)


@requirement("vai:host-token")
def test_a_token_lives_as_long_as_its_invocation_and_says_what_that_may_do(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        event(m, gateway=body["context"]["gateway"]["base_url"])
        cancels[m["id"]].wait()
    """
    root = write_vai_plugin(tmp_path, body, [export(permissions=EVERYTHING)])
    tokens = MemoryTokens()
    seen: list[Any] = []

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", tokens)

        def look(event: Any) -> None:
            seen.append(event["gateway"])
            seen.extend(tokens._claims.values())
            host.invocations.cancel(records(host)[0].invocation_id)

        result = await host.invoke("t", {}, on_progress=look, binding=BOUND, session_id="sess_1")
        (record,) = result.invocations
        base_url, claims = seen
        assert base_url == "https://gateway.example"
        assert claims["scopes"] == ["chains:read", "runs:write"] and claims["policy"] == {}
        assert (claims["invocation_id"], claims["binding_id"]) == (record.invocation_id, "bind_1")
        assert (claims["org_id"], claims["session_id"]) == ("default", "sess_1")
        assert claims["issued_at"] < claims["expires_at"]
        assert len(tokens) == 0

    with_host(run, host_of(root), main)


@pytest.mark.parametrize(
    ("gateway", "policy"), [(False, Policy()), (True, Policy(gateway_api_scopes=())), (True, Policy(network="none"))]
)
def test_there_is_no_token_without_a_gateway_or_without_anything_to_do_there(
    run: Run, tmp_path: Path, gateway: bool, policy: Policy
) -> None:
    body = "def tool(body, m): succeed(m, output(body['context']['gateway']))"
    root = write_vai_plugin(tmp_path, body, [export(permissions=EVERYTHING)])
    tokens = MemoryTokens()

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", tokens) if gateway else None
        result = await host.invoke("t", {}, binding=ExportBinding(policy=policy))
        said = result.value()["structured_output"]
        assert (said["delegation_token"], said["scopes"]) == (None, [])
        assert len(tokens) == 0

    with_host(run, host_of(root), main)


# The deadline.


def test_a_wait_that_a_timer_ended_a_moment_early_was_as_long_as_it_could_be(run: Run) -> None:
    async def main() -> None:
        assert is_over(Deadline(0)) and is_over(Deadline(TIMER_ROUNDING / 2))
        assert not is_over(Deadline(60))

    run(main)
