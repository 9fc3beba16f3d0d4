"""The catalogues of bad plugins are complete and sound, and an entry becomes the folder it describes."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.conformance.bad_plugins.catalogue import (
    COUNTS,
    FOLDER,
    INTERPRETERS,
    SETUPS,
    Entry,
    load_catalog,
    prepare,
)
from plugbay.conformance.bad_plugins.host_runner import VERDICTS
from plugbay.conformance.engine.manifests import vai_manifest
from plugbay.contracts.ainb import manifest as ainb_manifest
from plugbay.contracts.ainb import spec as ainb_spec
from plugbay.contracts.kaged import manifest as kaged_manifest
from plugbay.contracts.nexo import manifest as nexo_manifest
from plugbay.contracts.nexo import spec as nexo_spec
from plugbay.contracts.rune.manifest import parse
from plugbay.contracts.rune.spec import FILE_NAME
from plugbay.host.discovery.folders import discover
from plugbay.model.errors import CODES
from tests.support.canaries import VAI_EXPORTS
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

RUNE = FOLDER / "rune"
NEXO = FOLDER / "nexo"
CATALOG = load_catalog("rune")
NEXO_CATALOG = load_catalog("nexo")
KAGED = FOLDER / "kaged"
KAGED_CATALOG = load_catalog("kaged")
AINB = FOLDER / "ainb"
AINB_CATALOG = load_catalog("ainb")
VAI = FOLDER / "vai"
VAI_CATALOG = load_catalog("vai")


def test_every_row_of_the_table_of_situations_has_an_entry() -> None:
    assert {entry.row for entry in CATALOG if entry.row.startswith("5.")} == {f"5.{row}" for row in range(1, 41)}


def test_every_capability_rule_has_an_entry() -> None:
    assert {entry.row for entry in CATALOG if entry.row.startswith("6.")} == {f"6.{rule}" for rule in range(1, 8)}


def test_each_of_the_nine_codes_is_expected_somewhere() -> None:
    assert {entry.expect.code for entry in CATALOG} >= VERDICTS
    assert len(VERDICTS) == 9
    assert VERDICTS < CODES


@pytest.mark.parametrize("contract", sorted(SETUPS))
def test_every_file_is_used_and_every_used_file_is_there(contract: str) -> None:
    folder = FOLDER / contract
    used = {entry.file for entry in load_catalog(contract) if entry.file is not None} | {*SETUPS[contract].helpers}
    assert [file for file in used if not (folder / file).is_file()] == []
    ours = {file for file in used if not file.startswith("../")}
    assert ours == {path.name for path in folder.iterdir() if path.is_file()} - {"catalog.json"}


@pytest.mark.parametrize("contract", sorted(SETUPS))
def test_no_two_entries_share_a_name(contract: str) -> None:
    names = [entry.name for entry in load_catalog(contract)]
    assert len(names) == len(set(names))


CASES = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
import plugin
print(json.dumps(sorted(plugin.CASES)))
"""


@requirement("nexo:kit-catalogue", "kaged:kit-catalogue", "ainb:kit-catalogue", "vai:kit-catalogue")
@pytest.mark.parametrize("contract", sorted(SETUPS))
def test_every_case_of_a_program_has_an_entry_and_every_entry_its_case(contract: str) -> None:
    entries = load_catalog(contract)
    done = subprocess.run(
        [sys.executable, "-S", "-B", "-c", CASES, FOLDER / contract],
        env={"PLUGIN_MANIFEST": SETUPS["vai"].manifest(VAI_CATALOG[0])},
        capture_output=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) == {entry.kind for entry in entries if entry.file == "plugin.py"}


def test_every_case_of_the_script_of_rune_has_an_entry_and_every_entry_its_case() -> None:
    script = (RUNE / "plugin.sh").read_text("utf-8")
    patterns = {
        name for found in re.findall(r"^ *([\w|* \[!\]\\\n]+)\)", script, re.M) for name in re.split(r"[\s|\\]+", found)
    }
    kinds = {entry.kind for entry in CATALOG if entry.file == "plugin.sh"}
    assert [kind for kind in kinds if kind not in patterns] == []
    assert [name for name in patterns - {""} if not fnmatch.filter(kinds, name)] == []


@exhaustive
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_an_entry_becomes_a_folder_whose_manifest_is_right_where_it_should_be(entry: Entry, tmp_path: Path) -> None:
    root = prepare(entry, tmp_path)
    spec, problems = parse((root / FILE_NAME).read_text("utf-8"), root)
    if entry.expect.outcome == "refused" and entry.tool:
        assert spec is None
        return
    assert spec is not None, problems
    assert spec.id == entry.plugin_id
    assert entry.tool in [export.name for export in spec.exports] or not entry.tool
    if entry.file is not None:
        assert ((root / entry.file).stat().st_mode & 0o111 != 0) is entry.executable


@exhaustive
@pytest.mark.parametrize("entry", NEXO_CATALOG, ids=lambda entry: entry.name)
def test_an_entry_of_nexo_becomes_a_folder_whose_manifest_is_right(entry: Entry, tmp_path: Path) -> None:
    root = prepare(entry, tmp_path, NEXO)
    spec, problems = nexo_manifest.parse((root / nexo_spec.FILE_NAME).read_text("utf-8"), root, os.environ)
    assert spec is not None, problems
    assert problems == []
    assert spec.id == entry.plugin_id
    assert entry.tool in [export.name for export in spec.exports]
    assert (root / "child.py").is_file()


@exhaustive
@pytest.mark.parametrize("entry", KAGED_CATALOG, ids=lambda entry: entry.name)
def test_an_entry_of_kaged_becomes_a_folder_whose_manifest_is_right(entry: Entry, tmp_path: Path) -> None:
    root = prepare(entry, tmp_path, KAGED)
    spec, problems = kaged_manifest.parse((root / "kaged-plugin.yaml").read_text("utf-8"), root)
    assert spec is not None, problems
    assert problems == []
    assert spec.id == entry.plugin_id
    assert entry.tool in [export.name for export in spec.exports]
    assert (root / "child.py").is_file()


@exhaustive
@pytest.mark.parametrize("entry", AINB_CATALOG, ids=lambda entry: entry.name)
def test_an_entry_of_ainb_becomes_a_folder_whose_manifest_is_right(entry: Entry, tmp_path: Path) -> None:
    root = prepare(entry, tmp_path, AINB)
    spec, problems = ainb_manifest.parse((root / ainb_spec.FILE_NAME).read_text("utf-8"), root)
    assert spec is not None, problems
    assert problems == []
    assert spec.id == entry.plugin_id == root.name
    assert entry.tool.rpartition("/")[2] in [export.name for export in spec.exports]
    assert os.access(spec.command[0], os.X_OK)
    assert Path(spec.command[0]).read_text("utf-8").endswith(f"plugin.py {entry.kind}\n")


AINB_SUBJECTS = (
    "framing,JSON-RPC,error codes,binary payloads,lifecycle,plugin/init,plugin/render,plugin/cli_dispatch,"
    "plugin/handle_key,plugin/shutdown,host/snapshot,host/action/invoke,host/log,host/fs,host/network/fetch"
).split(",")


@requirement("ainb:kit-catalogue")
def test_everything_of_ainb_that_a_plugin_can_break_has_an_entry() -> None:
    assert {entry.row for entry in AINB_CATALOG} == set(AINB_SUBJECTS)


@exhaustive
@pytest.mark.parametrize("entry", VAI_CATALOG, ids=lambda entry: entry.name)
def test_an_entry_of_vai_becomes_a_folder_whose_manifest_is_right(entry: Entry, tmp_path: Path) -> None:
    (found,) = discover([prepare(entry, tmp_path, VAI)])
    assert found.spec is not None, found.problems
    assert [problem for problem in found.problems if problem.severity == "error"] == []
    assert found.spec.id == entry.plugin_id
    assert entry.tool in [export.name for export in found.spec.exports]
    assert found.spec.command[3:] == (entry.file, entry.kind)


VAI_SUBJECTS = (
    "control hello framing frames requests responses refusals statuses cancel crash leaving stderr tools hooks "
    "compactors harnesses secrets"
).split()


@requirement("vai:kit-catalogue")
def test_everything_of_vai_that_a_plugin_can_break_has_an_entry() -> None:
    assert {entry.row for entry in VAI_CATALOG} == set(VAI_SUBJECTS)


SUBJECTS = (
    "initialize capabilities messages errors notifications hooks roles health.check storage shutdown context".split()
)


@requirement("kaged:kit-catalogue")
def test_everything_of_kaged_that_a_child_can_break_has_an_entry() -> None:
    assert {entry.row for entry in KAGED_CATALOG if not entry.row.startswith("bad.")} == set(SUBJECTS)


SECTIONS = "1 3 4.1 4.1.1 4.2 5 5.2 5.3 5.4 5.t 5.w 5.x 5.y 5.z 6 7 8".split()


@requirement("nexo:kit-catalogue")
def test_every_section_of_nexo_that_a_child_can_break_has_an_entry() -> None:
    assert {entry.row for entry in NEXO_CATALOG if not entry.row.startswith("bad.")} == set(SECTIONS)


@requirement("nexo:kit-error-bands")
def test_every_error_code_of_nexo_is_answered_by_somebody() -> None:
    bands = {*range(-33405, -33400), *range(-33005, -33000), *range(-33105, -33100), *range(-33304, -33300)}
    told = {entry.expect.failure["detail"]["plugin_code"] for entry in NEXO_CATALOG if entry.kind == "error_of_choice"}
    assert told > bands


def test_everything_that_is_counted_is_expected_somewhere() -> None:
    assert {name for entry in (*NEXO_CATALOG, *KAGED_CATALOG, *AINB_CATALOG) for name in entry.expect.counts} == COUNTS


def test_what_an_entry_of_nexo_leaves_out_is_filled_in() -> None:
    (entry,) = [entry for entry in NEXO_CATALOG if entry.name == "tools_null"]
    assert (entry.tool, entry.plugin_id) == ("bad_tool", "bad")
    assert not entry.needs_visit


@pytest.mark.parametrize(
    "change",
    [
        {"stream": True},
        {"times": 2},
        {"events": {"topic": "a"}},
        {"way": "fire"},
        {"context": {"session_id": "s"}},
        {"expect": {"code": "timeout", "counts": {"noise": 1}}},
        {"expect": {"code": "timeout", "next": "new"}},
        {"expect": {"code": "timeout", "parting": "ok"}},
        {"expect": {"code": "timeout", "chunks": []}},
        {"expect": {"code": "timeout", "published": []}},
    ],
)
def test_whoever_expects_more_than_the_end_of_a_call_needs_to_visit_the_plugin(change: dict[str, Any]) -> None:
    assert Entry.model_validate({**BASE, **change}).needs_visit
    assert not Entry.model_validate(BASE).needs_visit


def test_a_script_is_handed_to_its_interpreter(tmp_path: Path) -> None:
    by_name = {entry.name: entry for entry in CATALOG}
    for name, file in (("good", "plugin.sh"), ("deep_json", "plugin.py")):
        root = prepare(by_name[name], tmp_path)
        process = json.loads((root / FILE_NAME).read_text("utf-8"))["process"]
        assert [process["command"], *process["args"]] == [*INTERPRETERS[Path(file).suffix], file, name]


BASE = {"name": "x", "file": None, "row": "5.1", "what": "does it wrong", "expect": {"code": "timeout"}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"expect": {"code": "tiemout"}}, "'tiemout' is not a failure code"),
        ({"expect": {}}, "give either code or outcome"),
        ({"expect": {"code": "timeout", "outcome": "succeeded"}}, "give either code or outcome"),
        ({"situation": "earthquake"}, "situation"),
        ({"expect": {"code": "timeout", "parting": "fine"}}, "'fine' is not a failure code"),
        ({"expect": {"code": "timeout", "counts": {"sighs": 1}}}, "nothing is counted as 'sighs'"),
        ({"expect": {"code": "timeout", "failure": {"a": "$no"}}}, "'$no' is neither a matcher nor a named value"),
        ({"times": 0}, "times"),
        ({"timeouts": {"handshke": 1}}, "there is no timeout called 'handshke'"),
        ({"input": {"$txt": 5}}, "is not a generator"),
        ({"rwo": "5.2"}, "rwo"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(problem)):
        Entry.model_validate({**BASE, **change})


def test_an_input_is_made_as_large_as_it_says() -> None:
    entry = Entry.model_validate({**BASE, "input": {"text": {"$text": 100_000}}})
    assert len(entry.given()["text"]) == 100_000


def test_the_plugins_of_vai_find_in_a_manifest_what_a_reader_of_toml_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {SETUPS["vai"].manifest(entry) for entry in VAI_CATALOG}
    for text in {*texts, vai_manifest("plugbay/canary", "canary.py", "", VAI_EXPORTS)}:
        monkeypatch.setenv("PLUGIN_MANIFEST", text)
        found, manifest = runpy.run_path(str(VAI / "child.py")), tomllib.loads(text)
        assert found["IDENTITY"] == {key: manifest[key] for key in ("package_id", "version")}
        assert found["KINDS"] == {export["id"]: export["kind"] for export in manifest["exports"]}
