"""A pin survives its file, and a file that is no pin is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.adapters.pin import MAX_BYTES, Pin, PinInvalid, PinnedExport, Settings, Source, load, parse, to_text


def pinned() -> Pin:
    export = PinnedExport(
        "example.source",
        "tool",
        "echo",
        "tool",
        "echo",
        description="Say it.",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
        output_schema={"type": "object"},
        effect="read_only",
        timeout=5.0,
        wraps=True,
        events=("a.b",),
    )
    settings = Settings(config="/etc/plugbay.toml", state="/state", logs="/logs", grants=["network"], grant_all=True)
    settings.environment = {"LANG": "C.UTF-8"}
    sources = [Source("example.source", "kaged", "/plugins/source/kaged-plugin.yaml")]
    return Pin("nexo", "example_source", "1.0.0", sources, [export], settings, name="S", description="D", approvals={})


def test_a_pin_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "adapter.json"
    file.write_text(to_text(pinned()))
    assert to_text(load(str(file))) == to_text(pinned())


def test_exports_are_found_by_their_form() -> None:
    assert [export.full_name for export in pinned().of_form("tool")] == ["example.source/echo"]
    assert pinned().of_form("hook") == []


def changed(**fields: Any) -> str:
    return json.dumps({**pinned().to_json(), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        changed(version=2),
        changed(exports=[{"plugin": "x"}]),
        changed(exports=[5]),
        changed(sources=[{}]),
        changed(plugin={"id": "x"}),
        changed(settings={"unknown": 1}),
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_pin_is_refused(text: str) -> None:
    with pytest.raises(PinInvalid):
        parse(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PinInvalid, match="No such file"):
        load(str(tmp_path / "absent.json"))
    large = tmp_path / "large.json"
    with open(large, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(PinInvalid, match="bytes"):
        load(str(large))
