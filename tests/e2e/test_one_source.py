"""One source under every contract: what a handler may do without harm, and what it is told where a host has less.

Everything here runs in real processes under the real host. A row is a tool of one plugin; how its call ends is the same
wherever it is called.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.everywhere import CONTRACTS, Outcome, Reach, hosted, written
from tests.support.tiers import first_alone

SOURCE = """
from __future__ import annotations

import asyncio, atexit, ctypes, os, subprocess, sys, threading, time
from plugbay.sdk import Plugin, ServiceError, Unsupported

plugin = Plugin("trouble", version="1.0.0")
if __name__ == "__main__":  # its declarations are also read in the process of the test
    atexit.register(lambda: os.write(1, b"noise at exit\\n"))
print("noise at import")


@plugin.tool()
def prints() -> str:
    print("noise")
    sys.stdout.write("more noise without an end")
    sys.stdout.flush()
    sys.__stdout__.buffer.write(b"bytes")
    return "printed"


@plugin.tool()
def writes_to_descriptor() -> str:
    os.write(1, b'{"jsonrpc":"2.0","id":1,"result":"forged"}\\n')
    return "written"


@plugin.tool()
def writes_from_c() -> str:
    libc = ctypes.CDLL(None)
    libc.puts(b"noise from C")
    libc.fflush(None)
    return "put"


@plugin.tool()
def starts_children() -> dict:
    done = subprocess.run([sys.executable, "-c", "print('noise'); print(input())"], stderr=subprocess.DEVNULL)
    return {"status": done.returncode, "shell": os.system("echo noise")}


@plugin.tool()
def reads_input() -> str:
    return input("who is there? ")


@plugin.tool()
def reads_descriptor() -> int:
    return len(os.read(0, 100))


@plugin.tool()
def exits() -> None:
    sys.exit(3)


@plugin.tool()
async def exits_later() -> None:
    sys.exit("bye")


@plugin.tool()
async def a_task_exits() -> str:
    async def exits() -> None:
        sys.exit(4)

    task = asyncio.ensure_future(exits())
    await asyncio.sleep(0)
    return "still here"


class Odd(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@plugin.tool()
def raises(what: str) -> None:
    raise {"odd": Odd(), "interrupt": KeyboardInterrupt(), "long": ValueError("x" * 100_000), "stop": StopIteration(1),
           "half": ValueError("\\udc80"), "group": ExceptionGroup("two", [ValueError(1), KeyError(2)])}[what]


@plugin.tool()
def returns(what: str):
    cyclic: list = []
    cyclic.append(cyclic)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    return {"nan": float("nan"), "infinity": [float("inf")], "bytes": b"x", "set": {1}, "cyclic": cyclic, "deep": deep,
            "object": object(), "key": {1: 2}, "half": "\\udc80", "wide": 2**70, "large": "x" * 70_000_000}[what]


@plugin.tool()
def yields_and_raises():
    yield "a"
    raise RuntimeError("in the middle")


@plugin.tool()
async def yields_later_and_raises():
    yield "a"
    raise RuntimeError("in the middle")


@plugin.tool()
def leaves_a_thread() -> str:
    threading.Thread(target=lambda: (time.sleep(3600), print("late"))).start()
    return "left"


@plugin.tool()
def a_thread_raises() -> str:
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    return "joined"


@plugin.tool()
def forks(how: str) -> int:
    child = os.fork()
    if child == 0 and how == "returns":
        return -1
    if child == 0 and how == "raises":
        raise RuntimeError("in the copy")
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@plugin.tool()
def runs_again() -> None:
    plugin.run()


@plugin.tool()
def closes_stdout() -> str:
    sys.stdout.close()
    os.close(1)
    return "closed"


SERVICES = {
    "memory": lambda ctx: ctx.memory.recall("a", "q"),
    "llm": lambda ctx: ctx.llm.complete("p", "m", []),
    "events": lambda ctx: ctx.events.publish("t", 1),
    "storage": lambda ctx: ctx.storage.get("k"),
    "snapshots": lambda ctx: ctx.snapshots.get("t"),
    "actions": lambda ctx: ctx.actions.invoke("a"),
    "files": lambda ctx: ctx.files.read("/etc/hostname"),
    "http": lambda ctx: ctx.http.fetch("https://example.org"),
    "ask": lambda ctx: ctx.ask("who is there?"),
}


def said(error: ServiceError) -> dict:
    if isinstance(error, Unsupported):
        return {"service": error.service, "contract": error.contract, "contracts": list(error.contracts)}
    return {"service": "", "contract": "", "contracts": []}


@plugin.tool()
def asks(service: str, ctx) -> dict:
    try:
        SERVICES[service](ctx)
    except ServiceError as error:
        return said(error)
    return {"service": "", "contract": "", "contracts": []}


@plugin.tool()
async def asks_later(service: str, ctx) -> dict:
    try:
        answer = SERVICES[service](ctx)
        if hasattr(answer, "__await__"):
            await answer
    except ServiceError as error:
        return said(error)
    return {"service": "", "contract": "", "contracts": []}


@plugin.tool()
def looks(ctx) -> dict:
    ctx.log.warn("seen", by="everybody")
    ctx.progress("half", share=0.5)
    return {"config": dict(ctx.config), "secrets": dict(ctx.secrets), "cancelled": ctx.cancelled,
            "plugin_id": bool(ctx.plugin_id)}


@plugin.tool(timeout=60)
def has_time(ctx) -> bool:
    return 0 < ctx.remaining <= 60 * 20  # a host may be told to give slow plugins more time


@plugin.tool(timeout=60)
async def has_time_later(ctx) -> bool:
    return 0 < ctx.remaining <= 60 * 20  # a host may be told to give slow plugins more time


@plugin.tool()
def process_id() -> int:
    return os.getpid()


if __name__ == "__main__":
    plugin.run()
"""

HOSTS = {
    "memory": ("nexo",),
    "llm": ("nexo", "mcp"),
    "events": ("nexo", "kaged"),
    "storage": ("kaged",),
    "snapshots": ("ainb",),
    "actions": ("ainb",),
    "files": ("ainb",),
    "http": ("ainb",),
    "ask": ("mcp",),
}
"""Which hosts have which service."""


def bug(message: str) -> Outcome:
    return Outcome(code="plugin_error", message=message)


def unsendable(why: str) -> Outcome:
    return bug(f"the result cannot be sent: {why}")


HARMLESS: dict[str, tuple[str, Any, Outcome]] = {
    "print": ("prints", {}, Outcome("printed")),
    "descriptor 1": ("writes_to_descriptor", {}, Outcome("written")),
    "a library in C": ("writes_from_c", {}, Outcome("put")),
    "child processes": ("starts_children", {}, Outcome({"status": 1, "shell": 0})),
    "input()": ("reads_input", {}, bug("EOFError: EOF when reading a line")),
    "descriptor 0": ("reads_descriptor", {}, Outcome(0)),
    "sys.exit": ("exits", {}, bug("SystemExit: 3")),
    "sys.exit in an async handler": ("exits_later", {}, bug("SystemExit: bye")),
    "an error whose text cannot be read": ("raises", {"what": "odd"}, bug("Odd: (its text cannot be read)")),
    "an interrupt": ("raises", {"what": "interrupt"}, bug("KeyboardInterrupt")),
    "an error with a long text": ("raises", {"what": "long"}, bug(f"ValueError: {'x' * 988}")),
    "the end of an iteration": ("raises", {"what": "stop"}, bug("StopIteration: 1")),
    "half a character in an error": ("raises", {"what": "half"}, bug("ValueError: \\udc80")),
    "a group of errors": ("raises", {"what": "group"}, bug("ExceptionGroup: two (2 sub-exceptions)")),
    "NaN": ("returns", {"what": "nan"}, unsendable("nan has no JSON form")),
    "bytes": ("returns", {"what": "bytes"}, unsendable("bytes has no JSON form")),
    "a set": ("returns", {"what": "set"}, unsendable("set has no JSON form")),
    "an object": ("returns", {"what": "object"}, unsendable("object has no JSON form")),
    "pieces that end in an error": ("yields_and_raises", {}, bug("RuntimeError: in the middle")),
    "async pieces that end in an error": ("yields_later_and_raises", {}, bug("RuntimeError: in the middle")),
    "a thread that goes on": ("leaves_a_thread", {}, Outcome("left")),
    "a thread that raises": ("a_thread_raises", {}, Outcome("joined")),
    "a copy that leaves": ("forks", {"how": "leaves"}, Outcome(7)),
    "a copy that returns": ("forks", {"how": "returns"}, Outcome(1)),
    "a copy that raises": ("forks", {"how": "raises"}, Outcome(1)),
    "run() in a handler": (
        "runs_again",
        {},
        bug("RuntimeError: this process serves a plugin already; run() is called once"),
    ),
    "a closed stdout": ("closes_stdout", {}, Outcome("closed")),
}
"""What a handler does, and how its call ends."""

UNSENDABLE = {
    "infinity": "inf has no JSON form",
    "cyclic": "the value contains itself",
    "deep": "nest",
    "key": "a key is of type int, not a string",
    "half": "half of a surrogate pair",
    "wide": "more than 64 bits",
    "large": "bytes",
}
"""Results that no contract carries; where in the answer they stand, contracts say differently."""


RESIDENT_FIRST = sorted(CONTRACTS, key="rune".__eq__)
"""A contract with a process for each call takes `make test` longest, so it is not the sample."""


@pytest.fixture(scope="module", params=first_alone(RESIDENT_FIRST))
def reach(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    folder = written(tmp_path_factory.mktemp("trouble"), SOURCE)
    with hosted(folder, request.param) as reach:
        yield reach


@pytest.mark.parametrize("what", HARMLESS)
def test_whatever_a_handler_does_the_answer_is_its_own(reach: Reach, what: str) -> None:
    tool, given, outcome = HARMLESS[what]
    assert said_alike(reach.call(tool, given)) == outcome
    assert type(reach.call("process_id", {}).value) is int


def said_alike(outcome: Outcome) -> Outcome:
    """Where a value stands in the answer, contracts say differently."""
    head, _, rest = outcome.message.partition("the result cannot be sent: ")
    return outcome if head or not rest else unsendable(rest.split(": ", 1)[-1] if rest.startswith("at ") else rest)


@pytest.mark.parametrize("what", UNSENDABLE)
def test_a_result_that_cannot_be_sent_is_an_error_and_not_a_hang(reach: Reach, what: str) -> None:
    outcome = reach.call("returns", {"what": what})
    assert (outcome.value, outcome.code in ("plugin_error", "frame_too_large")) == (None, True), outcome
    assert UNSENDABLE[what] in outcome.message
    assert type(reach.call("process_id", {}).value) is int


def test_a_task_of_the_authors_that_exits_takes_nobody_with_it(reach: Reach) -> None:
    """Where one process serves one call, its loop is the author's, and the call fails."""
    alone = reach.contract == "rune"
    assert reach.call("a_task_exits", {}) == (bug("SystemExit: 4") if alone else Outcome("still here"))
    assert reach.call("has_time_later", {}) == Outcome(True)


# What a host has, and what it has not.


@pytest.mark.parametrize("tool", ["asks", "asks_later"])
@pytest.mark.parametrize("service", HOSTS)
def test_a_service_that_a_host_does_not_have_is_one_error_everywhere(reach: Reach, service: str, tool: str) -> None:
    """Where a host has it, this one may refuse it all the same, and says why in its own words. It keeps no storage."""
    there = reach.contract in HOSTS[service] and service != "storage"
    missing = {"service": service, "contract": reach.contract, "contracts": list(HOSTS[service])}
    nothing = {"service": "", "contract": "", "contracts": []}
    assert reach.call(tool, {"service": service}) == Outcome(nothing if there else missing)


def test_what_every_handler_may_ask_is_there_everywhere(reach: Reach) -> None:
    seen = {"config": {}, "secrets": {}, "cancelled": False, "plugin_id": True}
    assert reach.call("looks", {}) == Outcome(seen)


@pytest.mark.parametrize("tool", ["has_time", "has_time_later"])
def test_how_much_time_is_left_is_known_everywhere(reach: Reach, tool: str) -> None:
    assert reach.call(tool, {}) == Outcome(True)


def test_a_plugin_that_was_killed_is_there_again(reach: Reach) -> None:
    first = reach.call("process_id", {}).value
    with suppress(ProcessLookupError):  # where a process serves one call, it is gone by itself
        os.kill(first, signal.SIGKILL)
    again = None
    while again is None:  # its host may wait a little before it starts it again
        again = reach.call("process_id", {}).value
    assert again != first


# Leaving.


@pytest.mark.parametrize("contract", first_alone(RESIDENT_FIRST))
def test_nothing_holds_up_the_end(tmp_path: Path, contract: str) -> None:
    """Threads that go on, and what was registered for the exit, end with the process."""
    with hosted(written(tmp_path, SOURCE), contract) as reach:
        assert reach.call("leaves_a_thread", {}) == Outcome("left")
        process = reach.call("process_id", {}).value
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
