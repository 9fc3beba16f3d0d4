"""Every byte of a link can be seen where it is read and written, from any moment on and for as long as wanted."""

from __future__ import annotations

import json

from plugbay.link.tap import Tap
from tests.link.test_link import Pair
from tests.support.loops import Run


class Seen:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.out = b""
        self.back = b""
        self.pending: list[int] = []

    def sent(self, data: bytes) -> None:
        self.out += data

    def received(self, data: bytes, pending: int) -> None:
        self.back += data
        self.pending.append(pending)


_: type[Tap] = Seen


def test_a_tap_is_shown_every_byte_each_way(run: Run) -> None:
    async def main() -> None:
        pair = Pair()
        seen = Seen()
        pair.host.tap(seen)
        await pair.open()
        assert await pair.ask("tea") == "tea"
        out, back = ([json.loads(line) for line in data.splitlines()] for data in (seen.out, seen.back))
        assert [len(out), len(back)] == [2, 2]
        assert '"tea"' in seen.out.decode() and '"tea"' in seen.back.decode()
        assert seen.pending == [0, 0]

    run(main)


def test_what_one_end_writes_is_what_the_other_reads(run: Run) -> None:
    async def main() -> None:
        pair = Pair()
        host, plugin = Seen(), Seen()
        pair.host.tap(host)
        pair.plugin.tap(plugin)
        await pair.open()
        assert await pair.ask("x" * 200_000) == "x" * 200_000  # more than a pipe takes at once
        assert host.out == plugin.back and plugin.out == host.back
        assert any(plugin.pending)

    run(main)


def test_a_link_can_be_tapped_later_and_let_go_again(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        await pair.ask("before")
        seen = Seen()
        pair.host.tap(seen)
        await pair.ask("during")
        pair.host.tap(None)
        await pair.ask("after")
        told = (seen.out + seen.back).decode()
        assert "during" in told and "before" not in told and "after" not in told

    run(main)
