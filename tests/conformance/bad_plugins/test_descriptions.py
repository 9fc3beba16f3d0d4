"""What a stranger gets of a bad plugin can be used: it runs, and says what a host must do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from plugbay.conformance.bad_plugins.catalogue import SETUPS
from plugbay.conformance.bad_plugins.descriptions import CONTRACTS, MEANINGS, BadPlugin, load_bad_plugins
from plugbay.conformance.engine.manifestless import GREETINGS as GREETINGS_BY_CONTRACT
from plugbay.contracts.ainb.messages import ABI_VERSION
from plugbay.contracts.frames import Lengths
from plugbay.contracts.vai.messages import PROTOCOL
from plugbay.model.errors import CODES
from tests.support.patience import PATIENCE

ALL = [each for contract in CONTRACTS for each in load_bad_plugins(contract)]

GREETINGS = {
    **{contract: dict(way.greeting) for contract, way in GREETINGS_BY_CONTRACT.items()},
    "ainb": {"jsonrpc": "2.0", "id": 1, "method": "plugin/init", "params": {"abi_version": ABI_VERSION}},
    "vai": {"protocol": PROTOCOL, "type": "hello", "role": "host", "host": {"name": "stranger", "version": "1"}},
}


def named(name: str) -> BadPlugin:
    return next(each for each in ALL if each.name == name)


def test_every_contract_has_bad_plugins_and_no_name_is_there_twice() -> None:
    assert set(CONTRACTS) == set(SETUPS)
    assert len({each.name for each in ALL}) == len(ALL) > 700


def test_every_code_has_a_meaning() -> None:
    assert MEANINGS.keys() == CODES


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_handout_says_what_to_ask_and_what_must_come_of_it(contract: str) -> None:
    for each in load_bad_plugins(contract):
        told = each.to_json()
        assert json.loads(json.dumps(told)) == told
        assert told["does"] and len(told["ask"]) >= 2
        assert len(told["must"]) >= 2
        assert all(line and not line.endswith(".") for line in (*told["ask"], *told["must"]))


@pytest.mark.parametrize("contract", CONTRACTS)
def test_whatever_can_be_run_is_there(contract: str) -> None:
    commands = {each.name: each.command() for each in load_bad_plugins(contract)}
    files = [Path(word) for command in commands.values() if command for word in command[0] if "bad_plugins" in word]
    assert files and all(file.is_file() for file in files)
    manifest_only = [name for name, command in commands.items() if command is None]
    assert (len(manifest_only) > 5) is (contract == "rune"), "of the others, the program is what is wrong"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_good_one_answers_whoever_greets_it(contract: str, tmp_path: Path) -> None:
    command = named(f"{contract}/good").command()
    assert command is not None
    body = json.dumps(GREETINGS[contract]).encode()
    by_length = contract in ("ainb", "vai")
    said = subprocess.run(
        command[0],
        input=Lengths.wrap(Lengths(Lengths.rules.max_body), body) if by_length else body + b"\n",
        env=command[1],
        cwd=tmp_path,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    ).stdout
    answer = json.loads(said.partition(b"\r\n\r\n")[2] if by_length else said.splitlines()[0])
    assert isinstance(answer, dict) and "error" not in answer
    assert "good" in json.dumps(answer), "it says who it is"


def test_the_last_argument_of_a_command_names_the_case() -> None:
    for name in (
        "rune/silent_handshake",
        "nexo/answer_late",
        "kaged/hook_null",
        "ainb/header_text",
        "vai/hello_nobody",
    ):
        command = named(name).command()
        assert command is not None and command[0][-1] == name.partition("/")[2]
    command = named("rune/still_there_after_ok").command()
    assert command is not None and command[0][-1] == "lingers_after_ok"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rune/silent_handshake", "the call fails as timeout: the expected message did not arrive in time"),
        ("nexo/initialize_error", "the next call is refused: the plugin is not restarted automatically"),
        ("nexo/good", "it exits when it is asked to"),
        ("nexo/initialize_twice", "late answers is counted, 1 or more"),
        ("nexo/publish_outside", "of its published events, none reaches the bus"),
        ("ainb/good_screen", 'the call succeeds with ["hello"]'),
        ("rune/cancelled_in_call", "no process of the plugin is left running"),
    ],
)
def test_duties_are_said_in_words(name: str, words: str) -> None:
    assert words in named(name).duties()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rune/silent_handshake", "timeouts handshake 0.3 s"),
        ("rune/silent_handshake", "register it as bad.plugin, version 1.0.0"),
        ("rune/capability_subset", "grant a, b"),
        ("rune/slow_spawn", "starting the process must take longer than the launch timeout"),
        ("ainb/good_screen", "render the screen bad/main, 80 by 24"),
        ("vai/good", "call good_tool with no input"),
    ],
)
def test_how_to_ask_is_said_in_words(name: str, words: str) -> None:
    assert words in named(name).asked()
