"""`plugbay conform` shows the kit's verdict, axis by axis."""

from __future__ import annotations

import json
import signal
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugbay.cli.conform import Files, show_axis, show_summary
from plugbay.cli.render import output
from plugbay.conformance.reports.report import AxisResult, Report, Status
from plugbay.model.spec import PluginSpec
from tests.cli.conftest import (
    MakePlugin,
    Run,
    descendants_of,
    environment,
    is_alive,
    wait_until,
    write_manifest,
)
from tests.conformance.foreign_plugins import write_plugin
from tests.conformance.nexo_plugins import BARE, nexo_folder
from tests.mcp_server import everything
from tests.support.canaries import PROGRAMS, load_canaries, prepare_canary, prepare_vai_canary
from tests.support.commands import Piped
from tests.support.http_servers import sdk_server
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

FAR = "https://mcp.example.com/mcp"
TOOLS = [{"name": "echo", "input_schema": {"type": "object"}}]


def test_a_conforming_plugin_passes_every_axis_that_concerns_it(run: Run, sdk_plugin: Path) -> None:
    done = run("conform", sdk_plugin, "--json")
    report = done.json
    assert [axis for axis in report["axes"] if axis["status"] == "failed"] == []
    assert done.code == 0
    assert set(report) == {"contract", "passed", "failed", "advice", "skipped", "axes"}
    assert report["contract"] == "rune"
    assert report["passed"] > 10
    assert report["passed"] + report["skipped"] == len(report["axes"])
    assert all(set(axis) == {"id", "title", "status", "detail"} for axis in report["axes"])


@requirement("mcp:cli-declared-name")
@pytest.mark.parametrize("place", ["plugbay.toml", ".mcp.json"])
def test_a_declared_server_is_named_by_its_name(run: Run, cwd: Path, place: str) -> None:
    words = [sys.executable, str(Path(everything.__file__)), "handshake"]
    if place == "plugbay.toml":
        (cwd / place).write_text(f"[mcp.srv]\ncommand = {json.dumps(words)}\n")
    else:
        (cwd / place).write_text(json.dumps({"mcpServers": {"srv": {"command": words[0], "args": words[1:]}}}))
    done = run("conform", "srv", "--only", "mcp.handshake", "--json")
    assert [axis["status"] for axis in done.json["axes"] if axis["id"] == "mcp.handshake"] == ["passed"]
    assert run("sandbox", "srv", "--show", "--json").json["visible"]
    assert run("conform", "other").code == 4


@pytest.fixture(scope="module")
def far() -> Iterator[str]:
    with sdk_server("key=sesame-sesame") as url:
        yield url


STDIO_AXES = ("mcp.stdout", "mcp.leaving")
"""Axes about the process of a server."""


@exhaustive
@requirement("mcp:remote-conform")
def test_a_server_on_the_network_is_tested_by_its_url(run: Run) -> None:
    with sdk_server("json") as url:
        done = run("conform", url, "--json", "--html", "report.html")
        axes = {axis["id"]: axis for axis in done.json["axes"]}
        assert [(id, axis["detail"]) for id, axis in axes.items() if axis["status"] == "failed"] == []
        assert done.code == 0 and done.json["passed"] > 8
        for id in STDIO_AXES:
            assert axes[id]["status"] == "skipped" and "this one is on the network" in axes[id]["detail"]
        assert axes["mcp.calls"]["status"] == axes["mcp.framing"]["status"] == "passed"


@requirement("mcp:remote-conform")
def test_a_declared_server_on_the_network_is_tested_with_its_headers(run: Run, cwd: Path, far: str) -> None:
    headers = 'headers = { Authorization = "Bearer secret://token" }'
    (cwd / "plugbay.toml").write_text(f'[host]\nstate_dir = "state"\n[mcp.far]\nurl = "{far}"\n{headers}\n')
    unset = run("conform", "far", "--only", "mcp.handshake", "--json")
    assert unset.code == 7 and "token" in unset.err and unset.json["axes"] == []
    assert run("mcp", "secret", "far", "token", stdin="sesame-sesame\n").code == 0
    done = run("conform", "far", "--only", "mcp.handshake")
    assert done.code == 0 and "mcp: conforms" in done.out, done.out + done.err
    assert "sesame" not in done.out + done.err


@requirement("mcp:remote-conform")
def test_a_server_on_the_network_that_cannot_be_greeted_is_refused_with_its_failure(run: Run, far: str) -> None:
    denied = run("conform", far)
    assert denied.code == 5 and "requires a login" in denied.err and f"plugbay mcp add NAME {far}" in denied.err
    absent = run("conform", f"http://127.0.0.1:{free_port()}/mcp")
    assert absent.code == 1 and "Connection refused" in absent.err


@requirement("mcp:remote-conform")
@pytest.mark.parametrize(
    "arguments", [("http://mcp.example.com/mcp",), (FAR, "--fixture"), (FAR, "--contract", "rune"), (FAR, "--", "true")]
)
def test_a_url_that_makes_no_sense_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("conform", *arguments).code == 2


def test_a_plugin_that_breaks_its_contract_is_a_finding(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    done = run("conform", make_plugin(answer="exit 3", tools=TOOLS), "--junit", "report.xml")
    assert done.code == 9
    lines = done.out.splitlines()
    assert any(line.startswith("✓ ") for line in lines)
    assert any(line.startswith("✗ ") for line in lines)
    assert any(line.startswith("– ") for line in lines)  # noqa: RUF001
    assert "exit code 3" in done.out
    assert lines[-1].startswith("rune: ")
    suite = ET.parse(cwd / "report.xml").getroot().find("testsuite")
    assert suite is not None
    assert int(suite.attrib["failures"]) == sum(line.startswith("✗ ") for line in lines)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_broken_manifest_is_invalid(run: Run, cwd: Path, form: list[str]) -> None:
    write_manifest(cwd / "broken", "{}")
    done = run("conform", "broken", *form)
    assert done.code == 3
    assert "broken/rterm-plugin.json:1  missing_field" in done.err
    if form:
        assert done.json == {"contract": "rune", "passed": 0, "failed": 0, "advice": 0, "skipped": 0, "axes": []}


def test_a_folder_of_plugins_is_not_found_and_its_plugins_are_named(run: Run, make_plugin: MakePlugin) -> None:
    make_plugin()
    done = run("conform", "plugins")
    assert done.code == 4
    assert "plugbay conform plugins/echo" in done.err
    assert run("conform", "nowhere").code == 4


def test_an_unknown_contract_is_a_usage_error(run: Run, make_plugin: MakePlugin) -> None:
    done = run("conform", make_plugin(), "--contract", "runes")
    assert done.code == 2
    assert "rune" in done.err


def test_a_report_that_cannot_be_written_is_reported(run: Run, make_plugin: MakePlugin) -> None:
    done = run("conform", make_plugin(answer="exit 3", tools=TOOLS), "--junit", "no/such/dir/report.xml")
    assert done.code == 1
    assert "no/such/dir/report.xml: No such file or directory" in done.err


FIXTURE = Path(__file__).parents[1] / "sdk" / "contracts" / "nexo_fixture.py"


@exhaustive
def test_the_fixture_of_an_sdk_is_a_program(run: Run, cwd: Path) -> None:
    done = run("conform", FIXTURE, "--fixture", "--strict", "--json", "--junit", "report.xml")
    assert done.code == 0
    assert (done.json["contract"], done.json["passed"], done.json["skipped"]) == ("nexo", 20, 0)
    assert ET.parse(cwd / "report.xml").getroot().find("testsuite") is not None


def test_a_nexo_plugin_is_held_to_nexo(run: Run, cwd: Path) -> None:
    nexo_folder(cwd / "bare", BARE, "")
    done = run("conform", "bare", "--json")
    assert done.code == 0
    assert (done.json["contract"], done.json["failed"]) == ("nexo", 0)
    assert done.json["passed"] > 20


@exhaustive
def test_an_ainb_plugin_is_held_to_the_fourteen_axes_and_a_failure_names_its_check(run: Run, cwd: Path) -> None:
    canary = next(each for each in load_canaries() if each.axis == "log_filtering")
    done = run("conform", prepare_canary(canary, cwd / "good"))
    assert done.code == 0
    lines = done.out.splitlines()
    assert len([line for line in lines if line[:2] in ("✓ ", f"{output.SKIP} ")]) == 14
    assert "✓ log filtering" in lines
    assert lines[-1].startswith("ainb: conforms")
    done = run("conform", prepare_canary(canary, cwd / "bad", "own_level"))
    assert done.code == 9
    assert "✗ log filtering  ainb.log_filtering" in done.out
    assert "    check     levels, it logs at levels that a host can filter by" in done.out.splitlines()


@exhaustive
@requirement("host:conform-fixture-command")
def test_the_fixture_of_an_sdk_is_a_command_with_arguments(run: Run) -> None:
    done = run("conform", "--fixture", "--json", "--", sys.executable, "-P", str(FIXTURE))
    assert done.code == 0 and done.json["passed"] > 0 and done.json["failed"] == 0, done.err


@exhaustive
def test_the_folder_of_a_fixture_may_be_named(run: Run, cwd: Path) -> None:
    nexo_folder(cwd / "sdk", FIXTURE.read_text("utf-8"), "")
    manifest = cwd / "sdk" / "nexo-plugin.toml"
    manifest.write_text(manifest.read_text("utf-8").replace('"-I", "-S", ', ""), "utf-8")
    done = run("conform", "sdk", "--fixture", "--json")
    assert (done.code, done.json["passed"]) == (0, 20)


def test_a_program_that_is_no_fixture_is_a_finding(run: Run, cwd: Path) -> None:
    (cwd / "odd.py").write_text("print('{}')")
    done = run("conform", "odd.py", "--fixture")
    assert done.code == 9
    assert "must print one JSON array of strings" in done.out


EARLY = "rune.leave.not_early"


@requirement("rune:kit-advice")
def test_advice_is_shown_and_does_not_fail(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, "rune", "leaves_early")
    junit, page, badge = (tmp_path / name for name in ("junit.xml", "page.html", "badge.svg"))
    done = run("conform", folder, "--only", EARLY, "--junit", junit, "--html", page, "--badge", badge)
    assert done.code == 0, done.out
    assert f"! runs until its stdin closes  {EARLY}" in done.out
    assert "advice    hosts in use sometimes report" in done.out
    assert "clause" not in done.out
    assert done.out.splitlines()[-1] == "rune: conforms  2 passed, 0 failed, 1 advice, 0 skipped"
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None and suite.attrib["failures"] == "0"
    assert [(case.findtext("system-out") or "").partition("\n")[0] for case in suite][-1].startswith("it exited on its")
    assert "Advice, not in the contract" in page.read_text("utf-8")
    assert "conforms" in badge.read_text("utf-8")


@requirement("rune:kit-advice")
def test_strictness_makes_advice_fail(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, "rune", "leaves_early")
    done = run("conform", folder, "--only", EARLY, "--strict", "--json")
    assert (done.code, done.json["failed"], done.json["advice"]) == (9, 1, 0)
    assert "\nclause: " not in done.json["axes"][-1]["detail"]
    done = run("conform", folder, "--only", EARLY, "--json")
    assert (done.code, done.json["failed"], done.json["advice"]) == (0, 0, 1)
    assert done.json["axes"][-1]["status"] == "advice"


@requirement("nexo:kit-early-publish")
def test_a_program_that_publishes_before_the_greeting_is_a_finding(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, "nexo", "publishes_early")
    program = (sys.executable, "-I", "-S", str(folder / "plugin.py"), "publishes_early")
    done = run("conform", "--contract", "nexo", "--only", "nexo.initialize.first", "--", *program)
    assert done.code == 9, done.err
    assert "writes nothing before its answer to initialize" in done.out
    assert '"method": "broker.publish"' in done.out
    assert "KeyError" not in done.out + done.err


def test_a_contract_without_fixtures_says_so(run: Run) -> None:
    done = run("conform", FIXTURE, "--fixture", "--contract", "rune")
    assert done.code == 1
    assert "there are no scenarios for fixtures of 'rune'" in done.err


GREETER = Path(__file__).parents[2] / "examples" / "greeter"
WRONG_ID = """#!/bin/sh
read -r _
echo '{"type":"handshake","manifest":{"plugin_id":"example.greeter","plugin_version":"1.0.0",\
"protocol_version":"rterm.plugin.v1","exposed_tools":["greet","divide"],"capabilities":["tool.execute"]}}'
read -r _
echo '{"type":"response","request_id":"<script>","status":"ok"}'
read -r _
"""


@pytest.fixture
def wrong_id(cwd: Path) -> str:
    """A program that answers with an id nobody asked with."""
    (cwd / "wrong id.sh").write_text(WRONG_ID)
    (cwd / "wrong id.sh").chmod(0o755)
    return "./wrong id.sh"


def test_a_command_is_tested_in_place_of_the_one_that_the_manifest_names(run: Run, wrong_id: str) -> None:
    done = run("conform", GREETER, "--only", "rune.request.answers", "--json", "--", wrong_id)
    assert done.code == 9
    assert [axis["id"] for axis in done.json["axes"]] == ["rune.handshake.answers", "rune.request.answers"]
    assert "$.request_id: expected" in done.json["axes"][1]["detail"]
    assert run("conform", GREETER, "--only", "rune.request.answers").code == 0


def test_a_page_and_a_badge_are_written_and_say_how_to_see_it_again(run: Run, wrong_id: str, cwd: Path) -> None:
    files = ("--html", "report.html", "--badge", "badge.svg", "--junit", "report.xml")
    done = run("conform", GREETER, "--only", "rune.request.answers", *files, "--", wrong_id)
    assert done.code == 9
    text = (cwd / "report.html").read_text("utf-8")
    assert "<h1>example.greeter <small>1.0.0</small></h1>" in text
    assert f"plugbay conform {GREETER} --only rune.request.answers -- &#x27;./wrong id.sh&#x27;" in text
    assert "&lt;script&gt;" in text and "<script" not in text
    picture = ET.parse(cwd / "badge.svg").getroot()
    assert picture.get("aria-label") == "rune: breaks 1 of 2 rules, by plugbay"
    assert ET.parse(cwd / "report.xml").getroot().find("testsuite") is not None


def test_a_server_of_mcp_is_tested_by_its_command_alone(run: Run, cwd: Path) -> None:
    server = PROGRAMS / "mcp" / "canary.py"
    words = ["--contract", "mcp", "--only", "mcp.tools", "--json", "--", sys.executable, "-E", "-S", str(server)]
    done = run("conform", *words)
    assert (done.code, done.json["failed"]) == (0, 0), done.err
    assert "mcp.tools" in [axis["id"] for axis in done.json["axes"]]


def test_a_command_without_a_manifest_is_taken_at_its_word(run: Run, cwd: Path) -> None:
    nexo_folder(cwd / "bare", BARE, "")
    (cwd / "bare" / "nexo-plugin.toml").unlink()
    done = run("conform", "--contract", "nexo", "--json", "--", sys.executable, "-I", "-S", "bare/plugin.py")
    assert (done.code, done.json["contract"], done.json["failed"]) == (0, "nexo", 0)
    done = run("conform", "--contract", "rune", "--", "true")
    assert done.code == 1
    assert "true exited without an answer when it was greeted as a plugin of rune" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the plugin's folder, or a command after --"),
        (("--", "true"), "a command without a manifest needs a contract"),
        ((GREETER, "--"), "a command must follow"),
        ((FIXTURE, "--fixture", "--", "true"), "by a command after --, not by both"),
        ((GREETER, "--only", "nexo.tool.answers"), "rune has no axis 'nexo.tool.answers'"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(run: Run, arguments: tuple[str | Path, ...], words: str) -> None:
    done = run("conform", *arguments)
    assert done.code == 2
    assert words in done.err


def test_an_axis_that_is_not_there_is_reported(run: Run) -> None:
    done = run("conform", GREETER, "--only", "rune.no.such")
    assert done.code == 1
    assert "there is no axis 'rune.no.such'" in done.err


SILENT = "import os, time\nwith open('pids', 'a') as file:\n    print(os.getpid(), file=file)\ntime.sleep(60)\n"
"""Says nothing, so the first check waits for it: 30 s, in which a signal comes on the slowest machine."""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_leaves_no_process_behind(cwd: Path, number: int, status: int) -> None:
    plugin = prepare_vai_canary(cwd)
    (plugin / "canary.py").write_text(SILENT)
    process = Piped("conform", plugin, cwd=cwd, env=environment(cwd))
    file = plugin / "pids"
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the plugin to be started")
    child = int(file.read_text())
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert b"Traceback" not in err
    wait_until(lambda: not is_alive(child) and not descendants_of(process.pid), "everything to be gone")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[AxisResult], str]:
    def shown(axis: AxisResult) -> str:
        output.out.cache_clear()
        show_axis(axis)
        return capsys.readouterr().out

    return shown


def test_an_axis_is_one_line_with_the_detail_under_failures(shown: Callable[[AxisResult], str]) -> None:
    assert shown(AxisResult("rune.a", "answers", Status.PASSED)) == "✓ answers\n"
    skipped = shown(AxisResult("rune.b", "declares", Status.SKIPPED, "nothing to declare"))
    assert skipped == f"{output.SKIP} declares  nothing to declare\n"
    failed = shown(AxisResult("rune.c", "leaves", Status.FAILED, "it stayed\nexit: none\nstderr: a: b\nstderr: c"))
    assert failed == "✗ leaves  rune.c\n    it stayed\n    exit      none\n    stderr    a: b\n              c\n"


def test_the_last_line_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    output.out.cache_clear()
    passed = AxisResult("rune.a", "answers", Status.PASSED)
    show_summary(Report("rune", (passed,)))
    show_summary(Report("rune", (passed, AxisResult("rune.b", "leaves", Status.FAILED, "it stayed"))))
    assert capsys.readouterr().out.split("\n") == [
        "",
        "rune: conforms  1 passed, 0 failed, 0 skipped",
        "",
        "rune: 1 failed  1 passed, 1 failed, 0 skipped",
        "",
    ]


def test_what_was_not_tried_after_a_failure_is_one_line_for_each_reason(
    shown: Callable[[AxisResult], str], capsys: pytest.CaptureFixture[str]
) -> None:
    untried = [
        AxisResult(f"rune.{n}", "answers", Status.SKIPPED, f"not tried, because rune.{n % 2}") for n in (2, 3, 4)
    ]
    assert [shown(axis) for axis in untried] == ["", "", ""]
    show_summary(Report("rune", (AxisResult("rune.0", "leaves", Status.FAILED, "it stayed"), *untried)))
    assert capsys.readouterr().out.split("\n")[:3] == [
        f"{output.SKIP} 2 more  not tried, because rune.0",
        f"{output.SKIP} 1 more  not tried, because rune.1",
        "",
    ]


def test_only_the_files_that_are_wanted_are_written(tmp_path: Path) -> None:
    report, spec = Report("rune", ()), PluginSpec("a", "1", "rune", tmp_path, ("true",))
    Files().write(report, spec, ["plugbay"])
    assert list(tmp_path.iterdir()) == []
    Files(tmp_path / "a.xml", tmp_path / "a.html", tmp_path / "a.svg").write(
        report, spec, ["plugbay", "conform", "a b"]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.svg", "a.xml"]
    assert "plugbay conform &#x27;a b&#x27;" in (tmp_path / "a.html").read_text("utf-8")
