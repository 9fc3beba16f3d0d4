"""Servers from other programs' configuration, and bundles: what is imported, what is skipped, and why."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.mcp import sources
from plugbay.cli.mcp.sources import MAX_BYTES, ImportedServer, read
from plugbay.host.admin.servers import BUNDLE_FOLDER, remove_bundle
from plugbay.model.errors import ConfigInvalid
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import Limits
from tests.support.requirements import requirement

RUN = {"command": "npx", "args": ["-y", "thing"]}


def one(tmp_path: Path, entry: Any, name: str = "x", **more: Any) -> ImportedServer | str:
    """The server that was taken, or why it was left."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: entry}, **more}))
    taken, left = read(file)
    return taken[0] if taken else left[0].why


@requirement("mcp:host-import")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("claude_desktop_config.json", '{"mcpServers": {"x": {"command": "npx", "args": ["-y", "thing"]}}}'),
        ("mcp.json", '{"servers": {"x": {"type": "stdio", "command": "npx", "args": ["-y", "thing"]}}, "inputs": []}'),
        ("settings.json", '{// mine\n"mcp": {"servers": {"x": {"command": "npx", "args": ["-y", "thing"],}}}}'),
        ("zed.json", '{"context_servers": {"x": {"source": "custom", "command": "npx", "args": ["-y", "thing"]}}}'),
        ("old.json", '{"context_servers": {"x": {"command": {"path": "npx", "args": ["-y", "thing"]}}}}'),
        ("config.toml", '[mcp_servers.x]\ncommand = "npx"\nargs = ["-y", "thing"]\n'),
    ],
)
def test_the_files_of_the_usual_clients_are_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    taken, left = read(tmp_path / name)
    assert [(server.name, server.command) for server in taken] == [("x", ["npx", "-y", "thing"])]
    assert left == []


@requirement("mcp:host-import")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "sse", "url": "https://x.example/sse"}, "old transport"),
        ({"type": "ws", "url": "https://x.example/"}, "no transport 'ws'"),
        ({"type": "http"}, "no url"),
        ({"url": "http://x.example/mcp"}, "must begin with https://"),
        ({"url": "https://x.example/mcp", "headers": {"Host": "x"}}, "header Host"),
        ({"url": "https://x.example/mcp", "headers": {"A": 1}}, "not a string"),
        ({**RUN, "disabled": True}, "is disabled"),
        ({**RUN, "enabled": False}, "is disabled"),
        ({}, "no command"),
        ({"command": "x", "args": "y"}, "not a list"),
        ({"command": "x", "env": ["A=b"]}, "not an object"),
        ({"command": "x", "env": {"A": {}}}, "not a string"),
        ({"command": "x", "args": ["${input:n}"]}, "prompts for"),
        ({"command": "x", "args": ["${command:y}"]}, "has no meaning"),
        ("npx", "not an object"),
    ],
)
def test_what_cannot_be_taken_is_left_with_a_reason(tmp_path: Path, entry: Any, words: str) -> None:
    found = one(tmp_path, entry)
    assert isinstance(found, str) and words in found


@requirement("mcp:host-import")
@pytest.mark.parametrize(
    ("entry", "headers", "secrets"),
    [
        ({"url": "https://x.example/mcp"}, {}, {}),
        ({"serverUrl": "https://x.example/mcp", "type": "http"}, {}, {}),
        (
            {"httpUrl": "https://x.example/mcp", "headers": {"Authorization": "Bearer tok-12345"}},
            {"Authorization": "Bearer secret://Authorization"},
            {"Authorization": "tok-12345"},
        ),
        (
            {"url": "https://x.example/mcp", "headers": {"X-Key": "${env:KEY}", "X-Region": "north"}},
            {"X-Key": "${KEY}", "X-Region": "north"},
            {},
        ),
        (
            {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${input:token}"}},
            {"Authorization": "Bearer secret://Authorization"},
            {},
        ),
        (
            {"url": "https://x.example/mcp", "bearer_token_env_var": "TOKEN"},
            {"Authorization": "Bearer ${TOKEN}"},
            {},
        ),
    ],
)
def test_a_server_on_the_network_is_taken_with_its_headers(
    tmp_path: Path, entry: Any, headers: dict[str, str], secrets: dict[str, str]
) -> None:
    found = one(tmp_path, entry)
    assert not isinstance(found, str)
    assert (found.url, found.headers, found.secrets) == ("https://x.example/mcp", headers, secrets)
    assert found.section() == {"url": found.url, **({"headers": headers} if headers else {})}


def test_a_name_that_can_be_no_id_is_left(tmp_path: Path) -> None:
    assert "path separator" in str(one(tmp_path, RUN, "a/b"))


@requirement("mcp:host-import")
def test_a_secret_in_plain_text_is_moved_with_a_note(tmp_path: Path) -> None:
    found = one(tmp_path, {**RUN, "env": {"GITHUB_TOKEN": "ghp_1", "KEYBOARD": "us", "API_KEY": "${API_KEY}"}})
    assert isinstance(found, ImportedServer)
    assert found.env == {"GITHUB_TOKEN": "secret://GITHUB_TOKEN", "KEYBOARD": "us", "API_KEY": "${API_KEY}"}
    assert found.secrets == {"GITHUB_TOKEN": "ghp_1"}
    assert "still has it in plain text" in found.notes[0]
    assert "ghp_1" not in repr(found)


def test_a_secret_among_the_arguments_is_warned_about(tmp_path: Path) -> None:
    for args in (["--api-key", "abc"], ["--token=abc"]):
        found = one(tmp_path, {"command": "x", "args": args})
        assert isinstance(found, ImportedServer) and "among the arguments" in found.notes[0]
    found = one(tmp_path, {"command": "x", "args": ["--token", "${T}"]})
    assert isinstance(found, ImportedServer) and found.notes == []


def test_what_a_person_is_asked_for_becomes_a_secret(tmp_path: Path) -> None:
    inputs = [{"id": "k", "type": "promptString", "password": True}, {"id": "r", "default": "eu"}]
    env = {"KEY": "${input:k}", "REGION": "${input:r}", "HOME_": "${env:HOME}"}
    found = one(tmp_path, {**RUN, "env": env}, inputs=inputs)
    assert isinstance(found, ImportedServer)
    assert found.env == {"KEY": "secret://KEY", "REGION": "eu", "HOME_": "${HOME}"}
    assert "plugbay mcp secret x KEY" in found.notes[0]


def test_the_folder_of_a_workspace_is_known(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    file = tmp_path / ".vscode" / "mcp.json"
    file.write_text(json.dumps({"servers": {"x": {"command": "run", "cwd": "${workspaceFolder}/a"}}}))
    ((server,), _) = read(file)
    assert server.section() == {"command": ["run"], "cwd": f"{tmp_path}/a"}


def test_servers_of_one_project_only_are_left(tmp_path: Path) -> None:
    file = tmp_path / ".claude.json"
    file.write_text(json.dumps({"mcpServers": {"x": RUN}, "projects": {"/p": {"mcpServers": {"y": RUN}}}}))
    taken, left = read(file)
    assert ([server.name for server in taken], [item.name for item in left]) == (["x"], ["y"])


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"other": {}}'])
def test_a_file_without_servers_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(ConfigInvalid):
        read(tmp_path / "f.json")
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize(
    "odd",
    [
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A": "x\0y"}},
        {"args": ["\ud800"]},
        {"env_vars": ["A=B"]},
        {"cwd": "/a\0b"},
    ],
)
def test_what_no_process_can_be_given_is_left_and_keeps_no_other_from_being_taken(tmp_path: Path, odd: Any) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"odd": {**RUN, **odd}, "good": RUN}}))
    taken, left = read(file)
    assert ([server.name for server in taken], [item.name for item in left]) == (["good"], ["odd"])


def test_a_list_that_is_none_is_no_list(tmp_path: Path) -> None:
    assert isinstance(one(tmp_path, {**RUN, "env_vars": 5}), ImportedServer)


def test_a_file_that_is_too_large_too_deep_or_a_pipe_is_refused(tmp_path: Path) -> None:
    large, deep, pipe = tmp_path / "large.json", tmp_path / "deep.toml", tmp_path / "pipe.json"
    large.write_bytes(b" " * (MAX_BYTES + 1))
    deep.write_text("x = " + "[" * 20_000)
    os.mkfifo(pipe)
    for file, words in ((large, "more than"), (deep, "recursion"), (pipe, "")):
        with pytest.raises(ConfigInvalid) as refused:
            read(file)
        assert words in str(refused.value)


def make_bundle(folder: Path, files: dict[str, bytes], modes: dict[str, int] | None = None) -> Path:
    path = folder / "b.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = ((modes or {}).get(name, stat.S_IFREG | 0o644)) << 16
            archive.writestr(member, data)
    return path


def reason_of(path: Path, state: Path, limits: Limits = sources.BUNDLE_LIMITS) -> Reason:
    with pytest.raises(PackageRefused) as caught:
        sources.unpack_bundle(path, state, limits)
    folder = state / BUNDLE_FOLDER
    assert not folder.exists() or os.listdir(folder) == []
    return caught.value.reason


@requirement("mcp:host-bundle")
def test_a_bundle_is_unpacked_with_plain_modes_and_found_again(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, {"a/run": b"x", "b.txt": b"y"}, {"a/run": stat.S_IFREG | 0o4775})
    folder = sources.unpack_bundle(path, tmp_path / "state")
    assert (folder / "b.txt").read_bytes() == b"y"
    assert stat.S_IMODE((folder / "a/run").stat().st_mode) & 0o7111 == 0o0111
    assert sources.unpack_bundle(path, tmp_path / "state") == folder
    remove_bundle(folder, tmp_path / "state")
    assert not folder.exists()


@requirement("mcp:host-bundle")
@pytest.mark.parametrize(
    ("name", "mode", "reason"),
    [
        ("../x", stat.S_IFREG | 0o644, Reason.UNSAFE_NAME),
        ("/x", stat.S_IFREG | 0o644, Reason.UNSAFE_NAME),
        ("x", stat.S_IFLNK | 0o777, Reason.LINK),
        ("x", stat.S_IFIFO | 0o644, Reason.SPECIAL_FILE),
    ],
)
def test_what_is_not_safe_is_refused(tmp_path: Path, name: str, mode: int, reason: Reason) -> None:
    assert reason_of(make_bundle(tmp_path, {"ok": b"", name: b"target"}, {name: mode}), tmp_path / "state") == reason


def test_two_names_that_some_systems_take_for_one_are_refused(tmp_path: Path) -> None:
    assert reason_of(make_bundle(tmp_path, {"A": b"", "a": b""}), tmp_path / "state") == Reason.DUPLICATE_NAME


def test_what_is_too_much_is_refused(tmp_path: Path) -> None:
    path, state = make_bundle(tmp_path, {"a": b"\0" * 100_000, "b": b""}), tmp_path / "state"
    assert reason_of(path, state, Limits(packed=10)) == Reason.TOO_LARGE
    assert reason_of(path, state, Limits(unpacked=50_000)) == Reason.TOO_LARGE
    assert reason_of(path, state, Limits(files=1)) == Reason.TOO_MANY_FILES
    assert reason_of(path, state, Limits(ratio=2, unjudged=10)) == Reason.BOMB


def test_a_file_that_is_no_zip_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b.mcpb").write_bytes(b"not a zip")
    assert reason_of(tmp_path / "b.mcpb", tmp_path / "state") == Reason.BAD_ARCHIVE
    assert reason_of(tmp_path / "none.mcpb", tmp_path / "state") == Reason.NOT_FOUND
    assert (sources.is_bundle("A.MCPB"), sources.is_bundle("npx")) == (True, False)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_broken_part_is_a_refusal_however_it_is_packed(tmp_path: Path, method: int) -> None:
    path = tmp_path / "b.mcpb"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", b"hello" * 1_000)
    data = bytearray(path.read_bytes())
    data[45:60] = b"\xff" * 15
    path.write_bytes(data)
    assert reason_of(path, tmp_path / "state") == Reason.BAD_ARCHIVE
    assert not any((tmp_path / "state" / BUNDLE_FOLDER).iterdir())
