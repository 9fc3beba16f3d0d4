"""Promises of the kaged contract about times, ids, rates and programs, kept with real processes on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement
from tests.support.tiers import few, first_alone

NOTED = 'noted = lambda what: open(os.environ["KAGED_CONFIG_ROOT"] + "/" + what, "a").write(f"{time.monotonic()}\\n")\n'


def plugbay(*words: str) -> str:
    """The output of a command."""
    command = [sys.executable, "-m", "plugbay", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


def times(state: Path, what: str) -> list[float]:
    path = state / "plugins" / "p" / what
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


@requirement("kaged:health-interval")
@pytest.mark.parametrize("busy", first_alone([True, False]))
def test_health_is_probed_at_the_interval_of_the_manifest_also_during_a_call(
    run: Run, tmp_path: Path, busy: bool
) -> None:
    """The call is answered after the third probe."""
    body = NOTED + (
        "asked, probes = [], 0\n"
        "def health(m):\n    global probes\n    noted('health')\n    reply(m, {'status': 'ok'})\n    probes += 1\n"
        "    if asked and probes >= 3:\n        reply(asked.pop(), 'late')\n"
        "def tool(name, params, m):\n    asked.append(m)\n"
    )
    root = write_kaged_plugin(tmp_path, body=body, health_interval_sec=5)
    state = tmp_path / "state"

    async def main() -> None:
        async with Host.load(root, state_dir=state) as host:
            if busy:
                assert await host.call("echo", {}, timeout=PATIENCE) == "late"
            await until(lambda: len(times(state, "health")) >= 3)

    run(main)
    found = times(state, "health")
    # Two intervals. A busy machine may be late; at the usual interval of 30 s they would take a minute.
    assert 5 < found[2] - found[0] < 50


@requirement("kaged:shutdown-whole-time")
@pytest.mark.parametrize("answers", few(["last", "first", "never"], 1))
def test_the_whole_time_to_shut_down_is_the_plugins(run: Run, tmp_path: Path, answers: str) -> None:
    """It needs 26 of 30 s, whether it answers before its work or after it or not at all."""
    work = "    time.sleep(26)\n    noted('done')\n"
    reply = "    reply(m, {})\n"
    order = {"first": reply + work, "last": work + reply, "never": work}[answers]
    body = f"{NOTED}import signal\ndef shutdown(m):\n{order}    sys.exit(0)\n"
    root = write_kaged_plugin(tmp_path, body=body, shutdown_timeout_sec=30)

    async def main() -> None:
        async with Host.load(root, state_dir=tmp_path / "state") as host:
            await host.call("echo", {})

    run(main)
    assert len(times(tmp_path / "state", "done")) == 1


@requirement("kaged:shutdown-whole-time")
def test_a_plugin_that_stays_is_terminated_after_its_time_and_not_before(run: Run, tmp_path: Path) -> None:
    body = NOTED + (
        "import signal\n"
        "def stop(*_):\n    noted('term')\n    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "def shutdown(m):\n    noted('asked')\n    time.sleep(60)\n"
    )
    root = write_kaged_plugin(tmp_path, body=body, shutdown_timeout_sec=3)

    async def main() -> None:
        async with Host.load(root, state_dir=tmp_path / "state") as host:
            await host.call("echo", {})

    run(main)
    (asked,), (term,) = times(tmp_path / "state", "asked"), times(tmp_path / "state", "term")
    assert term - asked > 1.5


@requirement("kaged:string-ids")
def test_a_host_answers_a_string_id_with_the_same_id(run: Run, tmp_path: Path) -> None:
    body = (
        "def tool(name, params, m):\n    global asked\n    asked = m\n"
        "    request('7a', 'kaged.storage.list')\n"
        "def answered(m):\n    reply(asked, m['id'])\n"
    )
    root = write_kaged_plugin(tmp_path, body=body, capabilities=["kaged:storage:read"])

    async def main() -> None:
        async with Host.load(root, state_dir=tmp_path / "state", grant_all=True) as host:
            assert await host.call("echo", {}) == "7a"

    run(main)


SOURCE = """
import time
from plugbay.sdk import Plugin
plugin = Plugin(
    "lit", "1.0.0", description="Adds.", author="Ada", license="MIT", homepage="https://example.org/lit",
    env={"LIT": "on"}, shutdown_seconds=30, health_seconds=9, hook_seconds=3,
)
plugin.notifies("counted")
@plugin.tool(description="Add.")
def add(count: int, ctx) -> int:
    for number in range(count):
        ctx.events.publish("counted", {"n": number})
    return count
@plugin.tool(description="Say when each notification is sent: not before, and not after.")
def timed(count: int, ctx) -> list[list[float]]:
    times = [time.monotonic()]
    for number in range(count):
        ctx.events.publish("counted", {"n": number})
        times.append(time.monotonic())
    return [[before, after] for before, after in zip(times, times[1:])]
@plugin.hook("on_session_start")
def start(event):
    return None
@plugin.on_shutdown
def stop():
    time.sleep(6)
    print("cleaned", file=__import__("sys").stderr)
plugin.run()
"""


HELLO = {"daemon_version": "0.1.0", "api_version": 1, "plugin_name": "lit", "storage_available": False, "projects": []}


def lit(folder: Path) -> Path:
    """The plugin above with its generated manifest."""
    root = folder / "lit"
    root.mkdir(parents=True)
    root.joinpath("plugin.py").write_text(SOURCE)
    said = subprocess.run(
        [sys.executable, "-m", "plugbay.sdk.describe", "plugin.py"], cwd=root, capture_output=True, check=True
    )
    (file,) = json.loads(said.stdout)["contracts"]["kaged"]["files"]
    root.joinpath(file["path"]).write_text(file["text"])
    return root


def ask(process: subprocess.Popen[bytes], **message: Any) -> Any:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
    while "method" in (heard := json.loads(process.stdout.readline())):
        pass
    return heard


@requirement("kaged:string-ids", "kaged:sdk-shutdown-time")
def test_a_plugin_of_the_sdk_answers_string_ids_and_uses_the_time_it_has_declared(tmp_path: Path) -> None:
    command = [sys.executable, str(lit(tmp_path) / "plugin.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for id in ("a-1", "", 0, 5, 2.5):
            assert ask(process, id=id, method="initialize", params=HELLO)["id"] == id
        assert ask(process, id="call", method="lit.add", params={"count": 1}) == {
            "jsonrpc": "2.0",
            "id": "call",
            "result": 1,
        }
        assert ask(process, id="unknown", method="lit.none")["id"] == "unknown"
        began = time.monotonic()
        assert ask(process, id="bye", method="shutdown")["id"] == "bye"
        assert time.monotonic() - began > 5
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert b"cleaned" in process.stderr.read()


@requirement("kaged:sdk-manifest-fields")
def test_a_source_sets_every_field_of_its_manifest(tmp_path: Path) -> None:
    text = (lit(tmp_path) / "kaged-plugin.yaml").read_text()
    for line in (
        'author: "Ada"',
        'license: "MIT"',
        'homepage: "https://example.org/lit"',
        'env:\n  LIT: "on"',
        "shutdown_timeout_sec: 30",
        "health_interval_sec: 9",
        "hook_timeout_sec: 3",
    ):
        assert line in text


@requirement("kaged:sdk-notification-rate", "kaged:notification-rate-exact")
def test_a_plugin_of_the_sdk_never_sends_more_notifications_than_the_host_takes(run: Run, tmp_path: Path) -> None:
    root = lit(tmp_path)

    async def main() -> None:
        async with Host.load(root) as host, host.subscribe("plugin.lit.>", depth=1000) as events:
            sent = await host.call("timed", {"count": 250}, timeout=PATIENCE)
            assert all(after - before >= 1 for (before, _), (_, after) in zip(sent, sent[100:], strict=False))
            # A host that stands still for a while reads two seconds at once, and takes a hundred of them.
            taken = 250 - host.plugins()[0].counters.get("publish_dropped", 0)
            numbers = [(await anext(events)).payload["n"] for _ in range(taken)]
            assert taken >= 100 and numbers == sorted(numbers)

    run(main)


@requirement("kaged:notification-rate-exact")
def test_a_host_takes_100_notifications_in_a_second_and_no_more(run: Run, tmp_path: Path) -> None:
    """Evenly spread over 0.9 seconds: a burst and a refill of the same second would let twice as many pass."""
    body = """
    def tool(name, params, m):
        for number in range(params.get("number", 0)):
            notify("changed", n=number)
            time.sleep(0.005)
        reply(m, {})
    """
    root = write_kaged_plugin(tmp_path, body=body, notifications=["changed"])

    async def main() -> None:
        async with Host.load(root) as host:
            await host.call("echo", {}, timeout=60)  # it has started
            began = time.monotonic()
            await host.call("echo", {"number": 180}, timeout=60)
            seconds = time.monotonic() - began  # of the host: notifications may wait in the pipe
            dropped = host.plugins()[0].counters["publish_dropped"]
            assert 180 - dropped <= 100 * (int(seconds) + 1)

    run(main)


@requirement("kaged:registered-name")
def test_a_tool_is_called_by_its_registered_name(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path, "p")

    async def main() -> None:
        async with Host.load(root) as host:
            for name in ("echo", "p/echo", "p.echo", "p/p.echo"):
                assert await host.call(name, {"a": 1}) == {"a": 1}

    run(main)
    assert json.loads(plugbay("call", str(root), "p.echo", '{"a": 1}', "--json"))["output"] == {"a": 1}


@requirement("kaged:registered-name")
def test_a_method_with_the_registered_name_of_a_tool_goes_first(run: Run, tmp_path: Path) -> None:
    body = "def method(name, params, m):\n    reply(m, 'the method')\n"
    root = write_kaged_plugin(tmp_path, "p", body, methods=["p.echo"])

    async def main() -> None:
        async with Host.load(root) as host:
            assert await host.call("p.echo", {}) == "the method"

    run(main)


# Programs.

RUNS = """
import subprocess
def runs(program):
    try:
        return subprocess.run([program, "--version"], capture_output=True).returncode == 0
    except OSError:
        return False
def seen():
    return {name: runs(name) for name in ("/bin/ls", "git", sys.executable)}
"""


@requirement("kaged:exec-fence")
def test_a_kaged_plugin_sees_no_program_but_its_own_and_those_it_was_granted(run: Run, tmp_path: Path) -> None:
    body = RUNS + (
        "def tool(name, params, m):\n    reply(m, runs(params['program']) if 'program' in params else seen())\n"
    )
    root = write_kaged_plugin(tmp_path, body=body, capabilities=["exec:git:/usr/bin/git"])

    async def seen(**settings: Any) -> list[bool]:
        async with Host.load(root, **settings) as host:
            return list((await host.call("echo", {})).values())

    async def check() -> None:
        assert await seen(grant_all=True) == [False, True, True]
        assert await seen(grant_all=True, unconfined=True) == [True, True, True]

    run(check)
    without = write_kaged_plugin(tmp_path / "without", body=body)

    async def check_without() -> None:
        async with Host.load(without) as host:
            assert list((await host.call("echo", {})).values()) == [False, False, True]
            assert (await host.call("echo", {"program": "mkdir"})) is True, "published plugins do not declare it"

    run(check_without)


@requirement("ainb:spawn-fence")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (False, [False, False, True]),
        (["git"], [False, True, True]),
        (True, [True, True, True]),
    ],
)
def test_an_ainb_plugin_sees_no_program_but_its_own_and_those_it_was_granted(
    run: Run, tmp_path: Path, asked: Any, expected: list[bool]
) -> None:
    body = RUNS + (
        "def cli_dispatch(params, m):\n"
        "    reply(m, {'stdout': b64(json.dumps(seen()).encode()), 'stderr': '', 'exit_code': 0})\n"
    )
    root = write_ainb_plugin(tmp_path, body=body, namespaces=["p"], capabilities={"spawn_subprocess": asked})

    async def main() -> None:
        async with Host.load(root, grant_all=True) as host:
            output = await host.run_cli("p", [])
            assert list(json.loads(output.stdout).values()) == expected

    run(main)


@requirement("kaged:inspect")
def test_inspect_shows_roles_hooks_knobs_and_health(tmp_path: Path) -> None:
    root = write_kaged_plugin(
        tmp_path,
        hooks=["pre_compact"],
        roles=["compactor"],
        hook_timeout_sec=3,
        health_interval_sec=7,
        config_schema={"properties": {"level": {"type": "integer", "minimum": 1, "maximum": 9}}},
        knobs={"level": {"type": "int_range", "label": "Level", "binds_to": "level", "default": 2}},
    )
    shown = plugbay("inspect", str(root))
    for words in ("compactor", "pre_compact · 3 s each", "level  int_range 1..9 of config.level, default 2: Level"):
        assert words in shown
    assert "every 7 s · 5 s to answer" in shown
    document = json.loads(plugbay("inspect", str(root), "--json"))
    assert document["roles"] == ["compactor"]
    assert document["hooks"] == ["pre_compact"]
    assert document["health"] == {"interval_seconds": 7.0, "answer_seconds": 5.0}
    assert document["knobs"] == [
        {
            "name": "level",
            "type": "int_range",
            "label": "Level",
            "description": "",
            "default": 2,
            "field": "level",
            "min": 1,
            "max": 9,
        }
    ]
