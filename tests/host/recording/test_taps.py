"""Who taps a plugin sees its wire: from the first byte, from the middle, for as long as wanted, live or recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Code, Host
from plugbay.host.config import settings_files
from plugbay.host.recording import recordings, tap_stream
from plugbay.host.recording.encodings import forms
from plugbay.host.recording.tap_stream import TapStream
from plugbay.link.recording import Frame, Happening, Item, Recording, read
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import ECHO_SH, write_plugin

KEY = "correct horse battery"

TELLS = """
import base64
def tool(name, params, m):
    key = greeting["system_config"]["key"]
    print("using", key, file=sys.stderr, flush=True)
    print("noise", key.encode().hex(), flush=True)
    reply(m, {"key": key, "basic": base64.b64encode(b"me:" + key.encode()).decode(), key: 1})
"""


def load(path: Path) -> Recording:
    with path.open("rb") as lines:
        return read(lines)


def kinds(items: Any) -> list[str]:
    return [getattr(item, "direction", getattr(item, "event", "stderr")) for item in items]


async def everything(stream: TapStream) -> list[Item]:
    return [item async for item in stream]


def test_a_call_is_seen_from_the_birth_of_its_process_to_its_end(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, script="echo hi >&2\n" + ECHO_SH)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            stream = host.tap("p")
            assert await host.call("t", {"a": 1}) == {"a": 1}
        items = await everything(stream)
        assert sorted(kinds(items)) == sorted(["spawn", "host", "plugin", "stderr", "host", "plugin", "exit"])
        assert (kinds(items)[0], kinds(items)[-1]) == ("spawn", "exit")
        frames = [item for item in items if isinstance(item, Frame)]
        assert [frame.value["type"] for frame in frames] == ["handshake", "handshake", "request", "response"]
        assert frames[-1].value["output"] == {"a": 1}
        assert [item.t for item in items] == sorted(item.t for item in items)
        ended = items[-1]
        assert isinstance(ended, Happening) and ended.facts == {"code": 0, "signal": None}

    run(main)


def test_each_process_is_a_conversation_of_its_own(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            stream = host.tap("p")
            for _ in range(2):
                await host.call("t", {})
        assert {item.link for item in await everything(stream)} == {1, 2}

    run(main)


def test_a_process_that_lives_already_can_be_tapped_and_let_go(run: Run, tmp_path: Path) -> None:
    write_kaged_plugin(tmp_path, "p", tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True, unconfined=True) as host:
            await host.call("t", {"said": "before"})
            with host.tap("p") as stream:
                await host.call("t", {"said": "during"})
                seated = host.taps._seated["p"][0]
                assert seated.wire is not None
                await until(lambda: len(stream._waiting) == 3)
            assert seated.wire is None and seated.link._tap is None
            await host.call("t", {"said": "after"})
            items = await everything(stream)
            assert kinds(items) == ["joined", "host", "plugin"]
            assert isinstance(items[1], Frame) and items[1].value["params"]["said"] == "during"

    run(main)


def test_nobody_sees_the_wire_of_another_plugin(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "one")
    write_plugin(tmp_path, "two")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            stream = host.tap("one")
            await host.call("two/t", {})
        assert await everything(stream) == []

    run(main)


def test_a_plugin_that_is_not_there_cannot_be_tapped(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed, match="no plugin is called 'q'") as caught:
                host.tap("q")
            assert caught.value.failure.code == Code.NOT_FOUND

    run(main)


def test_a_long_frame_is_shown_cut_and_recorded_whole(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)
    text = "x" * tap_stream.SHOWN_BYTES

    async def main() -> None:
        async with Host.load(tmp_path, record=tmp_path / "rec") as host:
            stream = host.tap("p")
            await host.call("t", {"text": text})
        shown = [item for item in await everything(stream) if isinstance(item, Frame)][-1]
        assert shown.cut.startswith("sha256:") and shown.size > len(text) and shown.value is None
        whole = load(tmp_path / "rec" / "p.jsonl").frames()[-1][1]
        assert whole.value["output"] == {"text": text}

    run(main)


def test_every_plugin_that_starts_is_recorded(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "one")
    write_plugin(tmp_path / "plugins", "two")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", record=str(tmp_path / "rec")) as host:
            await host.call("one/t", {"n": 1})
            await host.call("one/t", {"n": 2})
        assert [path.name for path in (tmp_path / "rec").iterdir()] == ["one.jsonl"]
        recording = load(tmp_path / "rec" / "one.jsonl")
        assert recording.header.plugin_id == "one"
        assert kinds(recording.items) == ["spawn", "host", "plugin", "host", "plugin", "exit"] * 2
        assert recording.end is not None and recording.end["frames"] == 8

    run(main)


def test_no_secret_is_in_what_is_shown_or_written_in_any_disguise(run: Run, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    write_kaged_plugin(tmp_path / "plugins", "p", TELLS, tools=["t"], system_config_schema=schema)
    settings_files.save_secrets(tmp_path / "state", "p", {"key": KEY})

    async def main() -> None:
        options: dict[str, Any] = {"grant_all": True, "unconfined": True, "state_dir": tmp_path / "state"}
        async with Host.load(tmp_path / "plugins", record=tmp_path / "rec", **options) as host:
            stream = host.tap("p")
            await host.attempt("t", {"text": KEY})
        shown = await everything(stream)
        written = (tmp_path / "rec" / "p.jsonl").read_text()
        assert {"stderr", "plugin", "host"} <= set(kinds(shown))
        told = written + "".join(json.dumps(item.to_json(), ensure_ascii=False) for item in shown)
        assert [form for form in forms(KEY) if form in told] == []
        places = [path for _, _, path in load(tmp_path / "rec" / "p.jsonl").redactions]
        assert "/params/system_config/key" in places and "/params/text" in places and "/result/basic" in places

    run(main)


def test_a_folder_that_cannot_be_written_costs_the_recording_and_not_the_call(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")
    (tmp_path / "rec").write_text("")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", record=tmp_path / "rec") as host:
            assert await host.call("t", {}) == {}
            assert host.journal.counts("p")["recording_failed"] == 1

    run(main)


def test_a_recording_that_is_not_complete_is_noted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(tmp_path / "plugins")
    monkeypatch.setattr(recordings.Recorder.__init__, "__kwdefaults__", {"most": 1000})

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", record=tmp_path / "rec") as host:
            for _ in range(3):
                await host.call("t", {})
        assert host.journal.counts("p")["recording_incomplete"] == 1

    run(main)


def test_recording_one_plugin_to_a_file_needs_no_folder(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            recorder = host.taps.record("p", tmp_path / "one.jsonl")
            await host.call("t", {})
        assert recorder.frames == 4 and len(load(tmp_path / "one.jsonl").frames()) == 4

    run(main)


def test_a_plugin_that_dies_is_seen_dying(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, script="read -r _; printf '%s\\n' '{hello}'; read -r _; printf half; exit 3\n")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            stream = host.tap("p")
            assert (await host.attempt("t", {})).failure is not None
        *_, half, ended = await everything(stream)
        assert isinstance(half, Frame) and half.raw == b"half"
        assert isinstance(ended, Happening) and ended.facts["code"] == 3

    run(main)


def test_a_host_that_nobody_taps_keeps_nothing_of_a_process_that_is_gone(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.call("t", {})
            await until(lambda: host.taps._seated["p"] == [])

    run(main)


def test_whoever_stops_watching_still_gets_what_has_passed(run: Run, tmp_path: Path) -> None:
    write_kaged_plugin(tmp_path, "p", tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True, unconfined=True) as host:
            await host.call("t", {})
            stream, other = host.tap("p"), host.tap("p")
            link = host.taps._seated["p"][0].link
            link._sender.tap.sent(b'{"n":1}\n')  # type: ignore[union-attr]
            stream.close()
            assert [item.to_json().get("frame") for item in stream.rest()] == [None, {"n": 1}]
            assert link._tap is not None, "somebody else still watches"
            other.close()
            assert link._tap is None and link._sender.tap is None

    run(main)
