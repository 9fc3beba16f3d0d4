"""`plugbay manifest`: every contract's manifest from one source."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from plugbay.cli import lookup
from tests.cli.conftest import Run
from tests.server.test_server import served
from tests.support.requirements import requirement

SOURCE = """\
from plugbay.sdk import Plugin

plugin = Plugin("weather", version="1.0.0", description="Looks out.")
print("loading")


@plugin.tool(effect="read_only")
def look(city: str = "Lima") -> dict:
    '''Look out.'''
    return {"sky": "blue"}


@plugin.hook("before_message")
def polite(event):
    return None


plugin.run()
"""

FILES = {
    "rune": {"rterm-plugin.json"},
    "nexo": {"nexo-plugin.toml"},
    "kaged": {"kaged-plugin.yaml"},
    "ainb": {"manifest.toml", "weather"},
    "vai": {"vai-plugin.toml", "bin/plugin", "schemas/look_input.json"},
    "mcp": {".mcp.json"},
}


@pytest.fixture
def weather(cwd: Path) -> Path:
    folder = cwd / "weather"
    folder.mkdir()
    (folder / "plugin.py").write_text(SOURCE)
    return folder


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} - {"plugin.py"}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {name: ((folder / name).read_bytes(), (folder / name).stat().st_mode) for name in files(folder)}


def change(folder: Path, old: str, new: str) -> None:
    (folder / "plugin.py").write_text((folder / "plugin.py").read_text().replace(old, new))


def test_all_that_the_plugin_can_carry_is_written_and_all_of_it_is_good(run: Run, weather: Path) -> None:
    done = run("manifest", "weather")
    assert (done.code, done.err) == (0, "")
    assert files(weather) == set().union(*FILES.values())
    assert "left out  hooks before_message" in done.out
    assert os.access(weather / "bin" / "plugin", os.X_OK)
    for contract in FILES:
        found = lookup.find(weather, contract)
        assert (found.contract, found.problems) == (contract, ())


def test_inspect_lists_declarations_that_the_contract_does_not_support(run: Run, weather: Path) -> None:
    run("manifest", "weather", "--contract", "rune", "--contract", "kaged")
    done = run("inspect", "weather/rterm-plugin.json")
    assert "Left out  declared in the source, not supported by rune\n  hooks before_message\n" in done.out
    assert run("inspect", "weather/rterm-plugin.json", "--json").json["left_out"] == "hooks before_message"
    change(weather, '@plugin.hook("before_message")', '@plugin.hook("on_session_start")')
    run("manifest", "weather")
    assert run("inspect", "weather/kaged-plugin.yaml", "--json").json["left_out"] is None


def test_an_annotation_without_a_schema_is_a_warning(run: Run, weather: Path) -> None:
    assert "warning" not in run("manifest", "weather").out
    source = weather / "plugin.py"
    source.write_text(f"from __future__ import annotations\n{source.read_text()}".replace("city: str", "city: Nowhere"))
    done = run("manifest", "weather")
    assert (done.code, done.out.count("warning not validated by a schema: ")) == (0, 1)
    assert "city: 'Nowhere' is ignored here" in done.out
    assert len(run("manifest", "weather", "--json").json["unchecked"]) == 1


def test_a_plugin_that_is_never_served_is_a_warning(run: Run, weather: Path) -> None:
    change(weather, "plugin.run()\n", "")
    done = run("manifest", "weather", COLUMNS="200")
    words = "plugin.py never calls plugin.run(), so it would exit at once; call it in the last line"
    assert (done.code, f"warning {words}" in done.out) == (0, True)
    assert run("manifest", "weather", "--json").json["served"] is False
    shown = run("inspect", "weather/rterm-plugin.json", "--json").json["problems"]
    assert [problem["code"] for problem in shown] == ["never_runs"]
    change(weather, "import Plugin\n", "import Plugin\n# served below\n")
    (weather / "plugin.py").write_text((weather / "plugin.py").read_text() + "plugin.run()\n")
    run("manifest", "weather")
    assert run("inspect", "weather/rterm-plugin.json", "--json").json["problems"] == []
    assert run("manifest", "weather", "--json").json["served"] is True


def test_a_default_that_does_not_match_its_annotation_is_a_warning(run: Run, weather: Path) -> None:
    source = weather / "plugin.py"
    source.write_text(
        f"from __future__ import annotations\n{source.read_text()}".replace("city: str", "city: Literal['Oslo']")
    )
    done = run("manifest", "weather", COLUMNS="200")
    assert done.code == 0
    assert 'warning look: the default of city does not fit: city: must be "Oslo", not "Lima"' in done.out
    assert len(run("manifest", "weather", "--json").json["misfits"]) == 1


def test_to_write_again_changes_nothing(run: Run, weather: Path) -> None:
    run("manifest", "weather")
    before = contents(weather)
    done = run("manifest", "weather/plugin.py", "--json")
    assert {item["status"] for item in done.json["contracts"]} == {"unchanged"}
    assert contents(weather) == before


def test_contracts_can_be_chosen(run: Run, weather: Path) -> None:
    done = run("manifest", "weather", "--contract", "vai", "--contract", "rune", "--json")
    assert done.code == 0
    assert files(weather) == FILES["vai"] | FILES["rune"]
    assert done.json["source"] == "weather/plugin.py"
    assert done.json["contracts"][1] == {
        "contract": "rune",
        "status": "written",
        "reason": None,
        "files": [{"path": "rterm-plugin.json", "change": "new"}],
        "left_out": ["hooks before_message"],
        "defaults": [],
        "problems": [],
    }


def test_without_a_choice_those_that_are_there_are_written(run: Run, weather: Path) -> None:
    run("manifest", "weather", "--contract", "rune", "--contract", "kaged")
    change(weather, "1.0.0", "1.1.0")
    done = run("manifest", "weather", "--json")
    assert [(item["contract"], item["status"]) for item in done.json["contracts"]] == [
        ("rune", "written"),
        ("kaged", "written"),
    ]
    assert files(weather) == FILES["rune"] | FILES["kaged"]
    assert '"plugin_version": "1.1.0"' in (weather / "rterm-plugin.json").read_text()


def test_a_check_finds_nothing_then_something_and_writes_nothing(run: Run, weather: Path) -> None:
    run("manifest", "weather")
    assert run("manifest", "weather", "--check").code == 0
    change(weather, "def look", "def see")
    before = contents(weather)
    done = run("manifest", "weather", "--check")
    assert done.code == 9
    assert '-      "name": "look",' in done.out
    assert '+      "name": "see",' in done.out
    assert "plugbay manifest without --check updates the files" in done.err
    assert contents(weather) == before


def test_a_change_of_nothing_but_a_body_is_no_difference(run: Run, weather: Path) -> None:
    run("manifest", "weather")
    change(weather, '"blue"', '"grey"')
    assert run("manifest", "weather", "--check").code == 0


def test_a_file_written_by_hand_is_shown_and_kept_unless_forced(run: Run, weather: Path) -> None:
    (weather / "nexo-plugin.toml").write_text('[plugin]\nid = "mine"\n')
    done = run("manifest", "weather", "--contract", "nexo")
    assert done.code == 1
    assert '-id = "mine"' in done.out
    assert "--force overwrites it" in done.err
    assert "mine" in (weather / "nexo-plugin.toml").read_text()
    assert run("manifest", "weather", "--contract", "nexo", "--force").code == 0
    assert 'id = "weather"' in (weather / "nexo-plugin.toml").read_text()


def test_a_manifest_toml_of_another_program_is_not_taken_for_one_of_ours(run: Run, weather: Path) -> None:
    (weather / "manifest.toml").write_text('title = "some other"\n')
    run("manifest", "weather", "--contract", "rune")
    done = run("manifest", "weather", "--json")
    assert [item["contract"] for item in done.json["contracts"]] == ["rune"]


def test_files_can_be_written_elsewhere(run: Run, weather: Path, cwd: Path) -> None:
    assert run("manifest", "weather", "--contract", "vai", "--out", "out").code == 0
    assert files(cwd / "out") == FILES["vai"]
    assert files(weather) == set()


def test_a_folder_of_another_name_is_none_of_ainb(run: Run, weather: Path) -> None:
    weather.rename(weather.parent / "sky")
    done = run("manifest", "sky", "--contract", "ainb")
    assert done.code == 3
    assert "the folder must have the name of the program, 'weather', not 'sky'" in done.out
    done = run("manifest", "sky")
    assert done.code == 0
    assert "the folder must have the name of the program" in done.out
    assert "rterm-plugin.json" in files(weather.parent / "sky")


def test_what_a_contract_refuses_is_not_written(run: Run, weather: Path) -> None:
    change(weather, '"weather"', '"9 lives"')
    done = run("manifest", "weather", "--contract", "kaged", "--json")
    assert done.code == 3
    (entry,) = done.json["contracts"]
    assert entry["status"] == "impossible"
    assert [problem["path"] for problem in entry["problems"]] == ["name"]
    assert files(weather) == set()


def test_a_source_that_cannot_be_loaded_is_shown_with_its_traceback(run: Run, weather: Path) -> None:
    change(weather, "plugin.run()", "boom()")
    done = run("manifest", "weather", "--json")
    assert done.code == 3
    assert "NameError: name 'boom' is not defined" in done.json["failure"]["message"]
    assert any("boom()" in line for line in done.json["failure"]["detail"]["stderr_tail"])
    assert "boom()" in run("manifest", "weather").err
    assert "NameError: name 'boom' is not defined" in run("manifest", "weather").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere"], 4, "nowhere does not exist"),
        (["weather", "--contract", "mcp2"], 2, "there is no contract 'mcp2'"),
    ],
)
def test_what_is_not_there_is_reported(run: Run, weather: Path, words: list[str], code: int, said: str) -> None:
    done = run("manifest", *words)
    assert done.code == code
    assert said in done.err


def test_the_folder_one_is_in_is_the_default(run: Run, weather: Path, cwd: Path) -> None:
    (cwd / "plugin.py").write_text(SOURCE.replace('"weather"', '"here"'))
    assert run("manifest", "--contract", "rune", "--json").json["id"] == "here"


# Drift, seen by other commands.


@requirement("host:drift-hint")
def test_a_call_warns_of_a_stale_manifest_and_goes_on(run: Run, weather: Path) -> None:
    assert run("manifest", "weather", "--contract", "rune").code == 0
    fresh = run("call", "weather", "look", "{}")
    assert fresh.code == 0 and "manifest" not in fresh.err
    change(weather, 'city: str = "Lima"', 'city: str = "Quito"')
    stale = run("call", "weather", "look", "{}")
    assert (stale.code, stale.json) == (0, {"sky": "blue"})
    assert "manifest_drift" in stale.err and "plugbay manifest weather updates it" in " ".join(stale.err.split())
    assert run("call", "weather", "look", "{}", "--json").err == ""


@requirement("host:drift-hint")
def test_a_call_in_a_folder_of_plugins_warns_of_stale_and_missing_manifests(run: Run, weather: Path, cwd: Path) -> None:
    assert run("manifest", "weather", "--contract", "rune").code == 0
    change(weather, 'city: str = "Lima"', 'city: str = "Quito"')
    bare = cwd / "bare"
    bare.mkdir()
    (bare / "plugin.py").write_text(SOURCE)
    done = run("call", ".", "weather/look", "{}")
    words = " ".join(done.err.split())
    assert done.code == 0 and "plugbay manifest weather updates it" in words
    assert "bare has no manifest and is left out; plugbay manifest bare writes one from its source" in words
    assert "note:" not in run("call", ".", "weather/look", "{}", "--json").err


@requirement("host:drift-hint")
def test_a_call_of_a_folder_without_its_manifest_names_the_command_that_writes_it(run: Run, weather: Path) -> None:
    done = run("call", "weather", "look", "{}")
    assert done.code == 4 and "plugbay manifest weather writes one from its source" in done.err


@requirement("host:drift-hint")
def test_a_server_warns_of_stale_and_missing_manifests(run: Run, weather: Path, cwd: Path) -> None:
    assert run("manifest", "weather", "--contract", "rune").code == 0
    change(weather, 'city: str = "Lima"', 'city: str = "Quito"')
    bare = cwd / "bare"
    bare.mkdir()
    (bare / "plugin.py").write_text(SOURCE)
    with served(cwd, str(cwd)) as server:
        assert server.facts["plugins"] == 1
        assert server.end() == 0
    logged = "".join(server.log)
    assert f"plugbay manifest {weather} updates it" in logged and f"{bare} has no manifest and is left out" in logged


# A source that cannot be used.


@requirement("host:inspect-source")
def test_the_source_of_a_generated_manifest_that_is_not_python_is_an_error_of_inspect(run: Run, weather: Path) -> None:
    assert run("manifest", "weather", "--contract", "rune").code == 0
    assert run("inspect", "weather").code == 0
    change(weather, "def look(", "def look((")
    done = run("inspect", "weather")
    assert done.code == 3 and "weather/plugin.py cannot be used: line 8: SyntaxError: " in " ".join(done.out.split())
    (problem,) = [each for each in run("inspect", "weather", "--json").json["problems"] if each["severity"] == "error"]
    assert problem["code"] == "source_invalid"
    called = run("call", "weather", "look", "{}")
    assert called.code != 0 and "source_invalid" in called.err, "the call goes on, and its plugin does not start"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE.replace("def look(", "def look(("), "weather/plugin.py cannot be loaded: line 8: SyntaxError: "),
        ("\tx = 1\n", "line 1: IndentationError: "),
        ("x = '\0'\n", "null bytes"),
        (SOURCE.replace("plugin.run()", "boom()"), "weather/plugin.py cannot be loaded: line 18: NameError: "),
    ],
    ids=["syntax", "indentation", "a NUL", "name"],
)
@requirement("host:inspect-source")
def test_a_file_that_cannot_be_loaded_is_invalid_and_its_line_is_named(
    run: Run, weather: Path, text: str, said: str
) -> None:
    (weather / "plugin.py").write_text(text)
    done = run("inspect", "weather/plugin.py")
    assert (done.code, done.out) == (3, "") and said in " ".join(done.err.split())
    assert said in run("inspect", "weather/plugin.py", "--json").json["failure"]["message"]


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (lambda folder: folder, 4),
        (lambda folder: (folder.mkdir(), folder)[1], 4),
        (lambda folder: (folder / "rterm-plugin.json").mkdir(parents=True), 3),
        (lambda folder: (folder.mkdir(), subprocess.run(["mkfifo", folder / "rterm-plugin.json"], check=True)), 3),
        (lambda folder: (folder.mkdir(), (folder / "rterm-plugin.json").write_bytes(b"\xff\xfe{}")), 3),
        (lambda folder: (folder.mkdir(), (folder / "rterm-plugin.json").symlink_to("rterm-plugin.json")), 3),
        (lambda folder: (folder.mkdir(), (folder / "nexo-plugin.toml").write_text("[plugin\n")), 3),
    ],
    ids=["nothing", "an empty folder", "a folder", "a pipe", "bytes", "a loop", "half a file"],
)
@requirement("host:inspect-source")
def test_a_place_without_a_readable_manifest_has_the_status_of_its_kind(
    run: Run, cwd: Path, make: Callable[[Path], object], status: int
) -> None:
    make(cwd / "odd")
    done = run("inspect", "odd")
    assert done.code == status and "odd" in done.out + done.err and "Traceback" not in done.err
