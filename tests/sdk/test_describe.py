"""What a source declares, said by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

import plugbay
from plugbay.sdk import Plugin
from plugbay.sdk.describe import describe_plugin, load
from tests.support.patience import PATIENCE

HEAD = 'from plugbay.sdk import Plugin\nplugin = Plugin("weather", version="1.2.0")\n'
TOOL = "@plugin.tool()\ndef look(city: str = 'Lima'):\n    '''Look out.'''\n    return city\n"


def source(folder: Path, text: str) -> Path:
    file = folder / "plugin.py"
    file.write_text(text)
    return file


def run(file: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(plugbay.__file__).parents[1])}
    command = [sys.executable, "-m", "plugbay.sdk.describe", str(file)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def answer(file: Path) -> dict[str, Any]:
    done = run(file)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "end",
    [
        "",
        "plugin.run()\n",
        'if __name__ == "__main__":\n    plugin.run()\n',
        "try:\n    plugin.run()\nexcept Exception:\n    1/0\n",
    ],
    ids=["never runs", "runs", "runs as a program", "catches exceptions"],
)
def test_a_plugin_is_found_however_its_source_ends_and_whether_it_is_served(tmp_path: Path, end: str) -> None:
    found = answer(source(tmp_path, HEAD + TOOL + end))
    assert (found["id"], found["served"]) == ("weather", bool(end))


def test_a_plugin_that_a_function_makes_is_found_where_it_runs(tmp_path: Path) -> None:
    text = "from plugbay.sdk import Plugin\ndef main():\n    Plugin('inner').run()\nmain()\n"
    assert answer(source(tmp_path, text))["id"] == "inner"


def test_what_a_source_prints_goes_to_stderr_that_of_its_children_too(tmp_path: Path) -> None:
    noise = "import os, subprocess\nprint('loud')\nos.write(1, b'louder\\n')\nsubprocess.run(['echo', 'loudest'])\n"
    done = run(source(tmp_path, noise + HEAD + TOOL))
    assert json.loads(done.stdout)["version"] == "1.2.0"
    assert done.stderr.split() == ["loud", "louder", "loudest"]


def test_modules_beside_the_source_are_found(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text("NAME = 'beside'\n")
    text = "from names import NAME\nfrom plugbay.sdk import Plugin\nPlugin(NAME).run()\n"
    assert answer(source(tmp_path, text))["id"] == "beside"


def test_a_source_that_raises_says_where(tmp_path: Path) -> None:
    done = run(source(tmp_path, HEAD + "1 / 0\n"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_thread_that_a_source_left_running_is_not_waited_for(tmp_path: Path) -> None:
    text = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n" + HEAD + TOOL
    assert answer(source(tmp_path, text))["id"] == "weather"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "plugin.py has no plugbay.sdk.Plugin"),
        (HEAD + "other = Plugin('other')\n", "plugin.py has 2 plugins, and runs none of them"),
    ],
)
def test_a_source_without_one_plugin_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LookupError, match=words):
        load(str(source(tmp_path, text)))


def test_the_same_plugin_under_two_names_is_one(tmp_path: Path) -> None:
    assert load(str(source(tmp_path, HEAD + "app = plugin\n")))[0].id == "weather"


def test_loading_leaves_this_process_as_it_was(tmp_path: Path) -> None:
    before = (Plugin.run, list(sys.path), list(sys.argv))
    load(str(source(tmp_path, HEAD)))
    assert before == (Plugin.run, sys.path, sys.argv)


def test_each_contract_has_its_files_or_a_reason() -> None:
    plugin = Plugin("weather")
    plugin.tool("look", effect="read_only")(lambda: 1)
    plugin.harness("go")(lambda run: None)
    found = describe_plugin(plugin, "main.py")["contracts"]
    assert {name: [file["path"] for file in entry["files"]] for name, entry in found.items()} == {
        "rune": ["rterm-plugin.json"],
        "nexo": ["nexo-plugin.toml"],
        "kaged": ["kaged-plugin.yaml"],
        "ainb": ["manifest.toml", "weather"],
        "vai": ["vai-plugin.toml", "bin/plugin", "schemas/look_input.json"],
        "mcp": [".mcp.json"],
    }
    assert found["kaged"]["left_out"] == ["harnesses go"]
    assert '"main.py"' in found["rune"]["files"][0]["text"]
    assert found["vai"]["defaults"] == ["publisher local, because the id has none, such as acme/…"]


def test_a_contract_that_carries_nothing_of_a_plugin_has_a_reason_and_no_files() -> None:
    plugin = Plugin("weather")
    plugin.harness("go")(lambda run: None)
    entry = describe_plugin(plugin, "main.py")["contracts"]["ainb"]
    assert entry["why_not"].startswith("it declares nothing that ainb supports: tools, screens")
    assert (entry["files"], entry["left_out"], entry["defaults"]) == ([], [], [])


def test_what_the_source_does_not_say_is_named_as_a_default() -> None:
    plugin = Plugin("acme/weather")
    plugin.tool("look")(lambda: 1)
    plugin.tool("see", effect="read_only")(lambda: 1)
    found = describe_plugin(plugin, "plugin.py")["contracts"]
    assert found["vai"]["defaults"] == ["effect_class unknown for look, because effect= is not set"]
    assert found["mcp"]["defaults"] == ["no hints about what look may do, because effect= is not set"]
    assert found["nexo"]["defaults"] == ["min_nexo_version >=0.1.0, any host"]


def test_a_capability_that_a_contract_has_no_word_for_is_named() -> None:
    asked = ["net:example.com:443", "network=example.com", "memory.recall", "filesystem=scratch"]
    plugin = Plugin("weather", capabilities=asked)
    plugin.tool("look", effect="read_only")(lambda: 1)
    found = {name: entry["defaults"][-1:] for name, entry in describe_plugin(plugin, "plugin.py")["contracts"].items()}

    def unsaid(contract: str, *names: str) -> list[str]:
        return [f"left out: {', '.join(names)}, which {contract} does not have"]

    assert found == {
        "rune": [],
        "nexo": unsaid("nexo", asked[0], asked[1], asked[3]),
        "kaged": unsaid("kaged", *asked[1:]),
        "ainb": unsaid("ainb", asked[0], asked[2], asked[3]),
        "vai": unsaid("vai", asked[0], asked[2]),
        "mcp": [],
    }


def test_an_annotation_that_cannot_be_read_is_reported() -> None:
    plugin = Plugin("weather")

    def look(a: Nowhere, b: int) -> int:  # type: ignore[name-defined]  # noqa: F821
        return b

    plugin.tool()(look)
    assert describe_plugin(plugin, "plugin.py")["unchecked"] == [
        "look: a: 'Nowhere' is ignored here: name 'Nowhere' is not defined"
    ]


def test_a_default_that_is_not_what_its_annotation_says_is_told() -> None:
    plugin = Plugin("weather")

    def look(sky: Literal["blue", "grey"] = "red") -> None: ...  # type: ignore[assignment]

    plugin.tool()(look)
    assert describe_plugin(plugin, "plugin.py")["misfits"] == [
        'look: the default of sky does not fit: sky: must be "blue" or "grey", not "red"'
    ]


def test_two_names_that_are_one_under_a_contract_are_a_reason_there_only() -> None:
    plugin = Plugin("weather")
    plugin.tool("look")(lambda: 1)
    plugin.compactor(export="look")(lambda messages: messages)
    found = describe_plugin(plugin, "plugin.py")["contracts"]
    assert "are both called 'look' under vai" in found["vai"]["why_not"]
    assert found["kaged"]["why_not"] == ""


def test_a_plugin_that_reads_its_nexo_manifest_has_none_written() -> None:
    text = '[plugin]\nid = "weather"\nversion = "1.0.0"\n[plugin.extends]\ntools = ["weather_look"]\n'
    plugin = Plugin.from_manifest(text)
    plugin.tool("look")(lambda: 1)
    found = describe_plugin(plugin, "plugin.py")["contracts"]
    assert found["nexo"]["why_not"] == "its source reads nexo-plugin.toml, so that file is written by hand"
    assert found["rune"]["why_not"] == ""


def test_ainb_says_what_its_folder_must_be_called() -> None:
    plugin = Plugin("lamp")
    plugin.screen("lamp")(lambda canvas: None)
    entry = describe_plugin(plugin, "plugin.py")["contracts"]["ainb"]
    assert entry["folder"] == "lamp"
    assert [file["path"] for file in entry["files"]] == ["manifest.toml", "lamp"]
