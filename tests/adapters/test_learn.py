"""The pin of an adapter: offers that are only known at run time, approvals, and sources that have nothing to offer."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from plugbay.adapters.learn import NothingMaps
from plugbay.mcp_server.listing import NamesCollide
from plugbay.model.errors import CallFailed, Code
from tests.adapters.adapting import SOURCE, on_loop, pin_of
from tests.sdk.everywhere import written
from tests.support.mcp_servers import write_server


@on_loop
async def test_the_offer_of_an_mcp_server_is_pinned_with_its_approval(tmp_path: Path) -> None:
    pin, rows = await pin_of([write_server(tmp_path / "servers")], "kaged", tmp_path)
    (export,) = pin.exports
    assert (export.full_name, export.served, export.description) == ("srv/echo", "echo", "Says it again.")
    assert [row.form for row in rows] == ["tool"]
    kept = pin.approvals["srv"]["definitions"]["tools"]
    assert [item["definition"]["name"] for item in kept] == ["echo"]
    assert pin.version == "1.0.0"


@on_loop
async def test_descriptions_and_schemas_of_nexo_come_with_its_greeting(tmp_path: Path) -> None:
    folder = written(tmp_path, SOURCE)
    pin, _ = await pin_of([folder / "nexo-plugin.toml"], "rune", tmp_path)
    echo = next(export for export in pin.exports if export.name.endswith("_echo"))
    assert echo.description == "Say it again."
    assert echo.input_schema["properties"].keys() == {"text"}


@on_loop
async def test_a_server_without_tools_is_refused(tmp_path: Path) -> None:
    empty = write_server(tmp_path / "servers", body="TOOLS = []")
    with pytest.raises(NothingMaps, match="no export at all"):
        await pin_of([empty], "nexo", tmp_path)


@on_loop
async def test_a_source_with_nothing_that_maps_is_refused_with_the_reasons(tmp_path: Path) -> None:
    body = "TOOLS = []\nRESOURCES = [{'uri': 'memo://1', 'name': 'note'}]"
    manifest = write_server(tmp_path / "servers", body=body)
    with pytest.raises(NothingMaps, match="rune has no resources") as refused:
        await pin_of([manifest], "rune", tmp_path)
    assert pickle.loads(pickle.dumps(refused.value)).rows == refused.value.rows
    pin, _ = await pin_of([manifest], "mcp", tmp_path)
    assert [export.form for export in pin.exports] == ["resource"]


@on_loop
async def test_a_source_that_cannot_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallFailed) as failed:
        await pin_of([write_server(tmp_path / "servers", body="sys.exit(4)")], "nexo", tmp_path)
    assert failed.value.code in (Code.CRASHED, Code.HANDSHAKE_FAILED)
    assert failed.value.failure.plugin == "srv"


@on_loop
async def test_a_pattern_that_matches_nothing_is_refused_with_the_exports(tmp_path: Path) -> None:
    with pytest.raises(NothingMaps, match="--only matches no export; there are srv/echo"):
        await pin_of([write_server(tmp_path / "servers")], "rune", tmp_path, only=["nothing*"])


@on_loop
async def test_variables_that_the_adapter_does_not_bring_along_have_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TOKEN_OF_TEST", "WORD_OF_TEST", "HOME"):
        monkeypatch.setenv(name, "1")
    variables = {"TOKEN": "${TOKEN_OF_TEST}", "PLACE": "${HOME}", "OTHER": "${UNSET_OF_TEST:-no}"}
    manifest = write_server(tmp_path / "servers", env=variables)
    said = json.loads(manifest.read_text())
    said["mcpServers"]["srv"]["args"].append("${WORD_OF_TEST}")
    manifest.write_text(json.dumps(said))
    _, rows = await pin_of([manifest], "rune", tmp_path)
    (row,) = [row for row in rows if row.kind == "variables"]
    assert row.name == "TOKEN_OF_TEST, WORD_OF_TEST"
    assert "process.env of rterm-plugin.json" in row.note
    _, rows = await pin_of([manifest], "nexo", tmp_path)
    assert [row.name for row in rows if row.kind == "variables"] == ["TOKEN_OF_TEST, WORD_OF_TEST"]
    _, rows = await pin_of([write_server(tmp_path / "others")], "rune", tmp_path)
    assert not [row for row in rows if row.kind == "variables"]


@on_loop
async def test_several_sources_share_an_adapter(tmp_path: Path) -> None:
    one = write_server(tmp_path / "one", "first")
    two = write_server(tmp_path / "two", "second")
    pin, _ = await pin_of([one, two], "vai", tmp_path, id="acme/both")
    assert pin.id == "acme/both"
    assert [export.served for export in pin.exports] == ["first__echo", "second__echo"]


@on_loop
async def test_names_that_collide_are_refused(tmp_path: Path) -> None:
    body = """
    TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("Read", "read")]
    """
    with pytest.raises(NamesCollide):
        await pin_of([write_server(tmp_path / "servers", body=body)], "nexo", tmp_path)
