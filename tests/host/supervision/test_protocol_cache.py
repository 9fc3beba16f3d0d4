"""The protocol era of each program is remembered by the identity of the program."""

from __future__ import annotations

import json
import os
from pathlib import Path

from plugbay.contracts.mcp.spec import resident
from plugbay.host.supervision.protocol_cache import FILE_NAME, MAX_REMEMBERED, USUAL, ProtocolCache, identity
from tests.support.requirements import requirement


def test_a_program_is_its_command_and_the_files_that_it_names(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("one")
    first = identity(["python3", "s.py"], tmp_path)
    assert identity(["python3", "s.py"], tmp_path) == first
    assert identity(["python3", "s.py", "-v"], tmp_path) != first
    script.write_text("another")
    assert identity(["python3", "s.py"], tmp_path) != first


@requirement("mcp:host-era")
def test_a_learned_era_is_known_at_the_next_start(tmp_path: Path) -> None:
    spec = resident("srv", ("python3",), tmp_path)
    protocol_cache = ProtocolCache(tmp_path)
    assert protocol_cache.era_for(spec, ["python3"]) == "handshake"
    protocol_cache.learn("srv", "modern")
    assert ProtocolCache(tmp_path).era_for(spec, ["python3"]) == "modern"
    assert ProtocolCache(tmp_path).era_for(spec, ["python3", "-x"]) == "handshake"
    again = ProtocolCache(tmp_path)
    again.era_for(spec, ["python3"])
    again.forget("srv")
    assert ProtocolCache(tmp_path).era_for(spec, ["python3"]) == "handshake"


def test_the_operators_word_goes_first(tmp_path: Path) -> None:
    assert ProtocolCache(tmp_path, {"srv": "modern"}).era_for(resident("srv", ("x",), tmp_path), ["x"]) == "modern"


def test_a_file_of_no_use_is_no_memory_and_no_failure(tmp_path: Path) -> None:
    for text in ("", "[", "[]", '{"a": 1}'):
        (tmp_path / FILE_NAME).write_text(text)
        assert ProtocolCache(tmp_path).era_for(resident("srv", ("x",), tmp_path), ["x"]) == "handshake"


def test_the_memory_is_bounded(tmp_path: Path) -> None:
    protocol_cache, spec = ProtocolCache(), resident("srv", ("x",), tmp_path)
    for number in range(MAX_REMEMBERED + 5):
        protocol_cache.era_for(spec, [str(number)])
        protocol_cache.learn("srv", "modern")
    assert len(protocol_cache._known) == MAX_REMEMBERED
    assert protocol_cache.era_for(spec, ["0"]) == "handshake"


def test_an_era_that_is_none_and_a_file_that_is_no_file_are_nothing_to_remember(tmp_path: Path) -> None:
    spec = resident("srv", ("run",), tmp_path)
    program = identity(("run",), tmp_path)
    (tmp_path / FILE_NAME).write_text(json.dumps({program: "stone age"}))
    assert ProtocolCache(tmp_path).era_for(spec, ("run",)) == USUAL
    (tmp_path / FILE_NAME).write_text(json.dumps({program: "modern"}))
    assert ProtocolCache(tmp_path).era_for(spec, ("run",)) == "modern"
    (tmp_path / FILE_NAME).unlink()
    os.mkfifo(tmp_path / FILE_NAME)
    assert ProtocolCache(tmp_path).era_for(spec, ("run",)) == USUAL
