"""The wire stays clean whatever prints; importing a plugin moves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import plugbay

SOURCE = Path(plugbay.__file__).parents[1]


def run_script(script: str, tmp_path: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    (tmp_path / "script.py").write_text(f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{script}")
    return subprocess.run(
        [sys.executable, "-S", "script.py"],
        cwd=tmp_path,
        input=given,
        capture_output=True,
        timeout=20,
        check=False,
    )


def test_after_a_claim_prints_and_child_processes_reach_stderr_and_the_wire_stays_clean(
    tmp_path: Path,
) -> None:
    done = run_script(
        """
import os
from plugbay.sdk.stdio import claim
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


def test_a_module_that_imports_the_sdk_for_somebody_else_claims_nothing(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text("from plugbay.sdk import Plugin\nplugin = Plugin('x')\n")
    done = run_script("import weather\nprint('a test report')\n", tmp_path, b"x")
    assert done.stdout == b"a test report\n"


def test_a_claim_happens_once_and_standard_input_is_empty_for_the_authors_code(tmp_path: Path) -> None:
    done = run_script(
        """
from plugbay.sdk.stdio import claim
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
from plugbay.sdk.stdio import claim
wire = claim()
print("nobody hears this")
os.system("echo nor this >&2")
wire.write(wire.read() if os.fstat(2) else b"")
"""
    (tmp_path / "script.py").write_text(f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{script}")
    command = ["/bin/sh", "-c", f"exec '{sys.executable}' -S script.py 2>&-"]
    done = subprocess.run(command, cwd=tmp_path, input=b"kept", stdout=subprocess.PIPE, timeout=20, check=True)
    assert done.stdout == b"kept"


def test_a_copy_of_the_process_has_no_wire(tmp_path: Path) -> None:
    done = run_script(
        """
import os
from plugbay.sdk.stdio import claim
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


def test_a_frame_larger_than_the_pipe_is_written_whole(tmp_path: Path) -> None:
    done = run_script("from plugbay.sdk.stdio import claim\nclaim().write(b'x' * 3_000_000)\n", tmp_path)
    assert len(done.stdout) == 3_000_000


def test_a_note_is_one_line_on_stderr_and_leaving_keeps_it(tmp_path: Path) -> None:
    done = run_script(
        """
from plugbay.sdk.stdio import leave, note
note("a word")
sys.stdout.write("half a line")
sys.stderr.close()
note("nobody hears this")
leave(3)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"a word\nhalf a line")
