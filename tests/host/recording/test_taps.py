"""A tap shows the frames of a plugin: from the first byte or from the middle, live or recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugbay import CallFailed, Code, Host
from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS
from plugbay.host.config.settings import save_secrets
from plugbay.host.recording import recordings, taps
from plugbay.host.recording.redaction import HIDDEN, FrameRedactor, Redactor, encodings
from plugbay.host.recording.taps import LINE_WEIGHT, LinkTap, TapStream
from plugbay.link.recording import Frame, Happening, Item, Recording, StderrLine, read
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import ECHO_SH, write_plugin
from tests.wire.chunks import cut, places

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
                seated = host.taps._processes["p"][0]
                assert seated.tap is not None
                await until(lambda: len(stream._waiting) == 3)
            assert seated.tap is None and seated.link._tap is None
            await host.call("t", {"said": "after"})
            items = await everything(stream)
            assert kinds(items) == ["joined", "host", "plugin"]
            assert isinstance(items[1], Frame) and items[1].value["params"]["said"] == "during"

    run(main)


def test_a_tap_shows_only_its_own_plugin(run: Run, tmp_path: Path) -> None:
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
            with pytest.raises(CallFailed, match="there is no plugin 'q'") as caught:
                host.tap("q")
            assert caught.value.failure.code == Code.NOT_FOUND

    run(main)


def test_a_long_frame_is_shown_cut_and_recorded_whole(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)
    text = "x" * taps.SHOWN_BYTES

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


def test_no_secret_is_shown_or_recorded_in_any_encoding(run: Run, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    write_kaged_plugin(tmp_path / "plugins", "p", TELLS, tools=["t"], system_config_schema=schema)
    save_secrets(tmp_path / "state", "p", {"key": KEY})

    async def main() -> None:
        options: dict[str, Any] = {"grant_all": True, "unconfined": True, "state_dir": tmp_path / "state"}
        async with Host.load(tmp_path / "plugins", record=tmp_path / "rec", **options) as host:
            stream = host.tap("p")
            await host.attempt("t", {"text": KEY})
        shown = await everything(stream)
        written = (tmp_path / "rec" / "p.jsonl").read_text()
        assert {"stderr", "plugin", "host"} <= set(kinds(shown))
        told = written + "".join(json.dumps(item.to_json(), ensure_ascii=False) for item in shown)
        assert [form for form in encodings(KEY) if form in told] == []
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


def test_a_host_without_taps_keeps_nothing_of_a_process_that_is_gone(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.call("t", {})
            await until(lambda: host.taps._processes["p"] == [])

    run(main)


def test_a_closed_tap_still_yields_the_items_before(run: Run, tmp_path: Path) -> None:
    write_kaged_plugin(tmp_path, "p", tools=["t"])

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True, unconfined=True) as host:
            await host.call("t", {})
            stream, other = host.tap("p"), host.tap("p")
            link = host.taps._processes["p"][0].link
            link._sender.tap.sent(b'{"n":1}\n')  # type: ignore[union-attr]
            stream.close()
            assert [item.to_json().get("frame") for item in stream.rest()] == [None, {"n": 1}]
            assert link._tap is not None, "somebody else still watches"
            other.close()
            assert link._tap is None and link._sender.tap is None

    run(main)


def line(number: int) -> StderrLine:
    return StderrLine(float(number), 1, str(number))


def stream(left: list[TapStream] | None = None, **limits: int) -> TapStream:
    gone: list[TapStream] = [] if left is None else left
    return TapStream(gone.append, **limits)


def test_frames_come_in_order_until_the_tap_is_closed(run: Run) -> None:
    async def main() -> None:
        left: list[TapStream] = []
        with stream(left) as watched:
            taking = asyncio.ensure_future(everything(watched))
            for number in range(3):
                watched.take(line(number))
                await asyncio.sleep(0)
        watched.close()
        assert await taking == [line(0), line(1), line(2)]
        assert left == [watched] and watched.dropped == 0

    run(main)


def test_the_oldest_give_way_when_too_many_wait(run: Run) -> None:
    async def main() -> None:
        watched = stream(items=2)
        for number in range(5):
            watched.take(line(number))
        watched.close()
        assert await everything(watched) == [line(3), line(4)]
        assert watched.dropped == 3

    run(main)


def test_the_oldest_give_way_when_they_are_too_large(run: Run) -> None:
    async def main() -> None:
        watched = stream(most=1000 + 2 * LINE_WEIGHT)
        large, small = Frame(0, 1, "host", 800, {}), Frame(1, 1, "host", 300, {})
        watched.take(large)
        watched.take(small)
        assert (watched.rest(), watched.dropped) == ([small], 1)
        watched.take(large)
        assert watched.rest() == [large]

    run(main)


def test_the_rest_can_be_taken_without_waiting(run: Run) -> None:
    async def main() -> None:
        watched = stream()
        watched.take(line(1))
        assert watched.rest() == [line(1)]
        assert watched.rest() == []

    run(main)


PASSPHRASE = "correct horse"

bodies = st.lists(
    st.dictionaries(st.text("abc", max_size=3), st.integers(-(2**53), 2**53) | st.text("xyz"), max_size=3), max_size=5
)


class Tapped:
    """A link tap and the items that it emitted."""

    def __init__(self, contract: str = "kaged", secrets: dict[str, Any] | None = None) -> None:
        self.items: list[Item] = []
        self.now = 0.0
        redactor = FrameRedactor(Redactor(secrets))
        self.tap = LinkTap(contract, 7, redactor, lambda: self.now, self.items.append)

    def frames(self, direction: str) -> list[Any]:
        return [item.value for item in self.items if isinstance(item, Frame) and item.direction == direction]


def wire(contract: str, direction: str, said: list[Any]) -> bytes:
    framing = CONTRACTS[contract].framing_of(direction)
    return b"".join(framing.wrap(json.dumps(body).encode()) for body in said)


@pytest.mark.parametrize("contract", CONTRACTS)
@settings(max_examples=30)
@given(asked=bodies, answered=bodies, at=places)
def test_the_frames_are_those_that_were_sent(
    contract: str, asked: list[Any], answered: list[Any], at: list[int]
) -> None:
    async def main() -> None:
        tapped = Tapped(contract)
        for chunk in cut(wire(contract, Role.HOST, asked), at):
            tapped.tap.sent(chunk)
        for chunk in cut(wire(contract, Role.PLUGIN, answered), at):
            tapped.tap.received(chunk, 0)
        tapped.tap.finish()
        assert tapped.frames(Role.HOST) == asked
        assert tapped.frames(Role.PLUGIN) == answered

    asyncio.run(main())


def test_nothing_is_done_where_the_bytes_pass(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped()
        tapped.now = 1.5
        tapped.tap.sent(b'{"a":1}\n{"b":')
        tapped.now = 2.5
        tapped.tap.sent(b"2}\n")
        assert tapped.items == []
        await asyncio.sleep(0)
        assert tapped.items == [Frame(1.5, 7, "host", 7, {"a": 1}), Frame(2.5, 7, "host", 7, {"b": 2})]

    run(main)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_tap_that_begins_in_the_middle_of_a_message_waits_for_the_next(run: Run, contract: str) -> None:
    async def main() -> None:
        tapped = Tapped(contract)
        first, second = (wire(contract, Role.PLUGIN, [{"n": number}]) for number in (1, 2))
        tapped.tap.received(first[5:], 5)
        tapped.tap.received(second, 0)
        tapped.tap.flush()
        assert tapped.frames(Role.PLUGIN) == [{"n": 2}]

    run(main)


def test_secrets_are_gone_and_their_places_are_marked(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped(secrets={"key": PASSPHRASE})
        tapped.tap.sent(json.dumps({"params": {"text": f"my {PASSPHRASE}"}}).encode() + b"\n")
        tapped.tap.received(f"noise {PASSPHRASE}\n".encode(), 0)
        assert tapped.tap.redact_stderr([f"using {PASSPHRASE}".encode()]) == [b"using ***"]
        tapped.tap.flush()
        frame, noise, line = tapped.items
        assert line == StderrLine(0.0, 7, f"using {HIDDEN}")
        assert isinstance(frame, Frame) and (frame.value, frame.redacted) == (
            {"params": {"text": f"my {HIDDEN}"}},
            ("/params/text",),
        )
        assert isinstance(noise, Frame) and (noise.raw, noise.redacted) == (b"noise ***", ("",))
        assert noise.problem.startswith("not JSON")

    run(main)


def test_bytes_that_are_no_message_are_shown_as_they_are(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped()
        tapped.tap.received(b"\xff\xfe hello\nrest", 0)
        tapped.tap.finish()
        noise, rest = tapped.items
        assert isinstance(noise, Frame) and (noise.raw, noise.size, noise.redacted) == (b"\xff\xfe hello", 8, ())
        assert isinstance(rest, Frame) and rest.raw == b"rest"

    run(main)


def test_a_broken_header_is_shown_with_its_reason(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped("ainb")
        tapped.tap.received(b"hello world\r\n\r\n", 0)
        tapped.tap.flush()
        (fault,) = tapped.items
        assert isinstance(fault, Frame) and fault.problem == "a header line has no name and colon"

    run(main)


def test_a_recording_is_begun_and_ended_while_the_host_runs(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins") as host:
            with host.tap("p") as stream:
                recorder = host.taps.begin_recording("p", tmp_path / "kept")
                await host.call("t", {"a": 1})
                host.taps.end_recording("p", recorder)
                await host.call("t", {"a": 2})
                assert [item for item in stream.rest() if isinstance(item, Frame)], "others go on"
            recording = load(recorder.path)
            assert (
                recording.end is not None and "'a': 1" in str(recording.items) and "'a': 2" not in str(recording.items)
            )
            with pytest.raises(CallFailed):
                host.taps.begin_recording("nobody", tmp_path / "kept")

    run(main)
