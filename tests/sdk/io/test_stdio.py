"""The wire stays clean whatever prints; importing a plugin moves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import plugbay
from plugbay.sdk.io.stdio import Wire
from tests.support.patience import PATIENCE

SOURCE = Path(plugbay.__file__).parents[1]


def run_script(script: str, tmp_path: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    (tmp_path / "script.py").write_text(f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{script}")
    return subprocess.run(
        [sys.executable, "-S", "script.py"],
        cwd=tmp_path,
        input=given,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


def test_after_a_claim_prints_and_child_processes_reach_stderr_and_the_wire_stays_clean(
    tmp_path: Path,
) -> None:
    done = run_script(
        """
import os
from plugbay.sdk.io.stdio import claim
print("before")
wire = claim()
print("printed")
os.system("echo child")
os.write(1, b"raw\\n")
wire.write(b"frame " + wire.read())
""",
        tmp_path,
        b"echo me",
    )
    assert done.stdout == b"frame echo me"
    assert {b"before", b"printed", b"child", b"raw"} <= set(done.stderr.split())


def test_a_script_that_is_the_plugin_claims_at_import_so_module_level_prints_are_harmless(
    tmp_path: Path,
) -> None:
    done = run_script("from plugbay.sdk import Plugin\nprint('loud')\n", tmp_path, b"x")
    assert (done.stdout, done.stderr) == (b"", b"loud\n")


def test_a_library_that_imports_the_sdk_claims_nothing(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text("from plugbay.sdk import Plugin\nplugin = Plugin('x')\n")
    done = run_script("import weather\nprint('a test report')\n", tmp_path, b"x")
    assert done.stdout == b"a test report\n"


def test_a_claim_happens_once_and_standard_input_is_empty_for_the_authors_code(tmp_path: Path) -> None:
    done = run_script(
        """
from plugbay.sdk.io.stdio import claim
assert claim() is claim()
assert sys.stdin.read() == ""
claim().write(claim().read())
""",
        tmp_path,
        b"kept",
    )
    assert done.stdout == b"kept", done.stderr


def test_a_host_may_close_what_it_does_not_read(tmp_path: Path) -> None:
    script = """
import os
from plugbay.sdk.io.stdio import claim
wire = claim()
print("nobody hears this")
os.system("echo nor this >&2")
wire.write(wire.read() if os.fstat(2) else b"")
"""
    (tmp_path / "script.py").write_text(f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{script}")
    command = ["/bin/sh", "-c", f"exec '{sys.executable}' -S script.py 2>&-"]
    done = subprocess.run(command, cwd=tmp_path, input=b"kept", stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
    assert done.stdout == b"kept"


def test_a_copy_of_the_process_has_no_wire(tmp_path: Path) -> None:
    done = run_script(
        """
import os
from plugbay.sdk.io.stdio import claim
wire = claim()
copy = os.fork()
if copy == 0:
    wire.write(b"twice")
    wire.write(b"never reached")
wire.write(b"status %d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
""",
        tmp_path,
    )
    assert (done.stdout, done.stderr) == (b"status 1", b"")


def test_a_fork_that_was_made_during_a_print_exits_as_well(tmp_path: Path) -> None:
    done = run_script(
        """
import os, threading
from plugbay.sdk.io.stdio import claim
wire = claim()
hear, say = os.pipe()
sys.stdout = open(say, "w")
printing = threading.Thread(target=print, args=("x" * 1_000_000,))
printing.start()
os.read(hear, 1)  # and so it goes on, with the lock of stdout, until somebody reads the rest
copy = os.fork()
if copy == 0:
    wire.write(b"twice")
wire.write(b"status %d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
os._exit(0)
""",
        tmp_path,
    )
    assert done.stdout == b"status 1"


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [
        ("SystemExit()", 0, b""),
        ("SystemExit(3)", 3, b""),
        ("SystemExit(257)", 1, b""),
        ("SystemExit('not\\udcff now')", 1, b"not\\udcff now\n"),
        ("ValueError('a bug')", 1, b"ValueError: a bug\n"),
        ("None", 1, b""),
    ],
)
def test_a_copy_ends_with_the_status_that_it_was_given(tmp_path: Path, raised: str, status: int, words: bytes) -> None:
    done = run_script(
        f"""
import os
from plugbay.sdk.io.stdio import claim, exit_copy
wire = claim()
exit_copy(SystemExit(9))  # of the original, nothing
copy = os.fork()
if copy == 0:
    exit_copy({raised})
wire.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
""",
        tmp_path,
    )
    assert (done.stdout, done.stderr) == (b"%d" % status, words)


def test_a_copy_with_a_closed_stderr_ends_as_well(tmp_path: Path) -> None:
    done = run_script(
        """
import os
from plugbay.sdk.io.stdio import claim, exit_copy
wire = claim()
copy = os.fork()
if copy == 0:
    os.close(2)
    exit_copy(SystemExit("nobody hears this"))
wire.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
""",
        tmp_path,
    )
    assert (done.stdout, done.stderr) == (b"1", b"")


def test_a_frame_larger_than_the_pipe_is_written_whole(tmp_path: Path) -> None:
    done = run_script("from plugbay.sdk.io.stdio import claim\nclaim().write(b'x' * 3_000_000)\n", tmp_path)
    assert len(done.stdout) == 3_000_000


def test_a_note_is_one_line_on_stderr_and_leaving_keeps_it(tmp_path: Path) -> None:
    done = run_script(
        """
from plugbay.sdk.io.stdio import leave, note
note("a word")
sys.stdout.write("half a line")
sys.stderr.close()
note("nobody hears this")
leave(3)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"a word\nhalf a line")


# Whether anybody is there.


def test_a_wire_knows_whether_it_is_read() -> None:
    reader, writer = os.pipe()
    wire = Wire(reader, writer)
    assert wire.has_reader()
    os.close(reader)
    assert not wire.has_reader()
    os.close(writer)


LONELY = """
from plugbay.sdk import Plugin
import time
plugin = Plugin("p")
@plugin.tool()
def waits():
    print("waiting", file=sys.stderr, flush=True)
    time.sleep(3600)
plugin.run()
"""

BEREFT = """
import subprocess, sys
given, said, errors = map(int, sys.argv[1:])
subprocess.Popen([sys.executable, "-S", "script.py"], stdin=given, stdout=said, stderr=errors)
sys.stdin.read()
"""

RUNE = [
    b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}\n',
    b'{"type":"request","request_id":"r","tool_name":"waits","context":{},"input":{}}\n',
]

NEXO = [b'{"jsonrpc":"2.0","id":1,"method":"tool.invoke","params":{"tool_name":"p_waits","args":{}}}\n']


@pytest.mark.parametrize("words", [RUNE, NEXO], ids=["rune", "nexo"])
def test_a_plugin_whose_host_died_leaves_although_its_input_is_held_open(tmp_path: Path, words: list[bytes]) -> None:
    (tmp_path / "script.py").write_text(f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{LONELY}")
    (given, say), (hear, said), (errors, fail) = os.pipe(), os.pipe(), os.pipe()
    with os.fdopen(errors, "rb") as stderr:
        ends = (given, said, fail)
        command = [sys.executable, "-c", BEREFT, *map(str, ends)]
        host = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, pass_fds=ends)
        for end in ends:
            os.close(end)
        for word in words:
            os.write(say, word)
        assert stderr.readline() == b"waiting\n"
        host.communicate()  # it leaves, and the plugin has another parent
        assert b"Traceback" not in stderr.read()  # until the plugin is gone
    os.close(say)
    os.close(hear)


PROLOGUE = f"""
import os, sys
sys.path.insert(0, {str(Path(plugbay.__file__).parents[1])!r})
from plugbay.sdk.io.stdio import on_signals
from plugbay.sdk.io.stdio import claim
wire = claim()
"""


@contextmanager
def running(script: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process, and the descriptor of what it says."""
    command = [sys.executable, "-S", "-c", PROLOGUE + script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, process.stdout.fileno()
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_call_while_the_main_thread_is_blocked_and_others_stay_the_authors(number: int) -> None:
    script = """
import signal
on_signals(lambda: (wire.write(b"called"), os._exit(5)))
own = []
signal.signal(signal.SIGUSR1, lambda *_: own.append(1))
wire.write(b"ready")
while not own:
    pass
wire.write(b"own")
wire.read()
"""
    with running(script) as (process, said):
        assert os.read(said, 9) == b"ready"
        process.send_signal(signal.SIGUSR1)
        assert os.read(said, 9) == b"own"
        process.send_signal(number)
        assert os.read(said, 9) == b"called"
        assert process.wait(PATIENCE) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_for_a_copy_ends_the_copy_and_not_the_plugin(number: int) -> None:
    script = f"""
on_signals(lambda: os._exit(5))
hear, say = os.pipe()
copy = os.fork()
if copy == 0:
    try:
        os.write(say, b"x")
        while True:
            pass
    except KeyboardInterrupt:
        os._exit(7)
os.read(hear, 1)
os.kill(copy, {int(number)})
wire.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
wire.read()
"""
    with running(script) as (process, said):
        assert os.read(said, 9) == (b"-15" if number == signal.SIGTERM else b"7")
        process.terminate()
        assert process.wait(PATIENCE) == 5


def test_a_copy_keeps_what_its_author_does_about_signals() -> None:
    script = """
import signal
on_signals(lambda: os._exit(5))
signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
copy = os.fork()
if copy == 0:
    os.kill(os.getpid(), signal.SIGTERM)
wire.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
"""
    with running(script) as (_, said):
        assert os.read(said, 9) == b"9"


def test_away_from_the_main_thread_nothing_is_arranged_and_nothing_left_open() -> None:
    script = """
from _thread import start_new_thread
def attempt():
    before = os.listdir("/dev/fd")
    on_signals(lambda: None)
    wire.write(b"same" if os.listdir("/dev/fd") == before else b"more")
start_new_thread(attempt, ())
wire.read()
"""
    with running(script) as (process, said):
        assert os.read(said, 9) == b"same"
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
