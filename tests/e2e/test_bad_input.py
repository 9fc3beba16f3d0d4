"""What nobody should send, against the real host: the exact failure, bounded memory, nothing left running, and
the next call works.

Plugins that misbehave come from the kit's catalogue and are called by a host in a process of its own, so that
its peak of memory is its own. Folders and manifests that are wrong are built here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Host
from plugbay.conformance.bad_plugins.host_runner import Entry, load_catalog, observe, prepare, verdict
from plugbay.host.discovery.folders import Found, discover, inspect
from tests.e2e.conftest import PlugbayPort, entry_named, good_folder, left_running, sampled
from tests.support.patience import PATIENCE

MAX_GROWTH_KIB = 16 * 1024
"""A line may have 1 MiB and is held a few times over while it is judged; a gibibyte is 64 times this."""

ROOT = Path(__file__).parents[2]
BAD = [entry for entry in load_catalog("rune") if entry.row.startswith("bad.")]
MANIFEST = "rterm-plugin.json"


# A host in a process of its own.


def measure(name: str, tmp: str) -> None:
    """Run by the child process: call one bad plugin; print what happened and how much memory it took."""
    before = 0

    async def settle(host: Host) -> None:
        nonlocal before
        await host.call("good.tool")
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")

    entry = entry_named(name)
    port = PlugbayPort(good_folder(Path(tmp)), settle)
    observed = asyncio.run(observe(port, entry, prepare(entry, Path(tmp))))
    grown = memory("VmHWM") - before
    print(json.dumps({"problem": verdict(entry.expect, observed), "grown": grown, "next": port.next_output}))


def memory(field: str) -> int:
    """KiB of this process, as the kernel counts them."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def hold_for_a_moment() -> None:
    """Run by the child process: twice the memory that would be too much; print how much of it was seen."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    bytearray(b"x") * (2 * MAX_GROWTH_KIB * 1024)
    print(memory("VmHWM") - before)


def in_a_process_of_its_own(task: str) -> Any:
    """What a function of this module prints there; here, memory that earlier tests gave back may be used again."""
    program = f"from tests.e2e import test_bad_input; test_bad_input.{task}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    child = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize("entry", sampled(BAD), ids=lambda entry: f"{entry.row}_{entry.name}")
def test_a_plugin_that_misbehaves_costs_little_and_spoils_nothing(entry: Entry, tmp_path: Path) -> None:
    result = in_a_process_of_its_own(f"measure({entry.name!r}, {str(tmp_path)!r})")
    assert result["problem"] == ""
    assert result["next"] == {"said": "hello"}
    assert result["grown"] < MAX_GROWTH_KIB


def test_the_measurement_sees_memory_that_was_held_for_a_moment() -> None:
    assert in_a_process_of_its_own("hold_for_a_moment()") > MAX_GROWTH_KIB


# Manifests and folders.


EVERYTHING_WRONG = """{
  "plugin_id": "a/b",
  "plugin_version": " ",
  "protocol_version": "rterm.plugin.v9",
  "display_name": 7,
  "description": [],
  "capabilities": ["fs", 3],
  "process": {
    "command": "",
    "args": "none",
    "dir": false,
    "env": ["NO_VALUE"]
  },
  "tools": [
    {
      "name": " padded",
      "description": 1,
      "capabilities": "fs",
      "approval_tier": "harmless",
      "mutating": "no",
      "target_kind": "universe"
    },
    {"name": "twin"},
    {"name": "twin", "capabilities": ["net"]},
    "no table"
  ],
  "toolz": []
}
"""

EVERY_PROBLEM = {
    ("plugin_id", 2),
    ("plugin_version", 3),
    ("protocol_version", 4),
    ("display_name", 5),
    ("description", 6),
    ("capabilities[1]", 7),
    ("process.command", 9),
    ("process.args", 10),
    ("process.dir", 11),
    ("process.env", 12),
    ("tools[0].name", 16),
    ("tools[0].description", 17),
    ("tools[0].capabilities", 18),
    ("tools[0].approval_tier", 19),
    ("tools[0].mutating", 20),
    ("tools[0].target_kind", 21),
    ("tools[2].name", 24),
    ("tools[2].capabilities", 24),
    ("tools[3]", 25),
    ("toolz", 27),
}


def folder(root: Path, text: str | bytes) -> Path:
    """A plugin folder with this manifest."""
    root.mkdir(parents=True)
    (root / MANIFEST).write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def error_codes(found: Found) -> list[str]:
    return [problem.code for problem in found.errors]


async def call_good(*paths: Path) -> tuple[Any, tuple[str, ...]]:
    """What the good plugin says in a host that was given these folders, and what the host leaves running."""
    async with Host(discover(paths)) as host:
        output = await host.call("good.tool")
        return output, await left_running(host)


def assert_good_beside(bad: Path, tmp: Path) -> None:
    """The good plugin works in a host that was given the bad folder, too."""
    assert asyncio.run(call_good(bad, good_folder(tmp))) == ({"said": "hello"}, ())


def test_every_wrong_field_of_a_manifest_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    bad = folder(tmp_path / "bad", EVERYTHING_WRONG)
    found = inspect(bad)
    assert found.spec is None
    assert {(problem.path, problem.line) for problem in found.problems} == EVERY_PROBLEM
    assert_good_beside(bad, tmp_path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "parse_error"),
        ("{", "parse_error"),
        ("[]", "invalid_type"),
        ("null", "invalid_type"),
        ('{"plugin_id": "a", "plugin_id": "b"}', "parse_error"),
        ('{"plugin_id": NaN}', "parse_error"),
        ('{"plugin_id": "\\ud800"}', "parse_error"),
        ("[" * 100_000, "parse_error"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "parse_error"),
        (b'{"plugin_id": "\xff"}', "parse_error"),
        (b"\xef\xbb\xbf{}", "parse_error"),
        (" " * (1 << 20) + "{}", "too_large"),
    ],
    ids="empty half array null repeated_key nan surrogate deep deep_objects not_utf8 bom too_large".split(),
)
def test_a_manifest_that_is_no_manifest_is_one_problem_of_one_plugin(
    text: str | bytes, code: str, tmp_path: Path
) -> None:
    bad = folder(tmp_path / "bad", text)
    assert error_codes(inspect(bad)) == [code]
    assert_good_beside(bad, tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_manifest_that_is_no_file_is_not_waited_for(make: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    make(bad / MANIFEST)
    assert error_codes(inspect(bad)) == ["unreadable"]
    assert_good_beside(bad, tmp_path)


def test_a_command_that_is_a_directory_is_seen_before_the_first_call(port: PlugbayPort, tmp_path: Path) -> None:
    entry = entry_named("command_is_directory")
    bad = prepare(entry, tmp_path)
    problems = inspect(bad).problems
    assert [(problem.code, problem.severity) for problem in problems] == [("command_unusable", "warning")]
    assert "is a directory" in problems[0].message
    assert verdict(entry.expect, asyncio.run(observe(port, entry, bad))) == ""
    assert port.next_output == {"said": "hello"}


@pytest.mark.parametrize("inside", [False, True], ids=["given", "in_a_folder_of_plugins"])
def test_a_plugin_folder_that_is_a_symlink_loop_is_a_problem_and_no_hang(inside: bool, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "one").symlink_to(plugins / "other")
    (plugins / "other").symlink_to(plugins / "one")
    (plugins / "self").symlink_to("self")
    given = [plugins] if inside else [plugins / name for name in ("one", "other", "self")]
    found = discover(given)
    assert [(item.root.name, error_codes(item)) for item in found] == [
        ("one", ["unreadable"]),
        ("other", ["unreadable"]),
        ("self", ["unreadable"]),
    ]
    assert_good_beside(given[0], tmp_path)


def test_a_folder_that_contains_itself_is_searched_once(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    prepare(entry_named("good"), plugins)
    (plugins / "again").symlink_to(plugins)
    assert [item.root.name for item in discover([plugins]) if item.spec] == ["good"]
    assert asyncio.run(call_good(plugins)) == ({"said": "hello"}, ())


def test_of_two_plugins_with_one_id_neither_is_served(tmp_path: Path) -> None:
    twins = tmp_path / "twins"
    for name in ("one", "two"):
        prepare(entry_named("handshake_null"), twins / "made").rename(twins / name)
    (twins / "made").rmdir()
    found = discover([twins])
    assert [error_codes(item) for item in found] == [["duplicate_id"], ["duplicate_id"]]
    assert str(twins / "two") in found[0].problems[-1].message

    async def call_twin() -> str:
        async with Host.load(twins) as host:
            try:
                await asyncio.wait_for(host.call("bad.tool"), PATIENCE)
            except CallFailed as error:
                return error.code
        return "succeeded"

    assert asyncio.run(call_twin()) == "not_found"
    assert_good_beside(twins, tmp_path)
