"""Keys that seal secrets: where they come from, and what opens what."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plugbay.server.domain.keyring import FILE_NAME, FILE_VARIABLE, VARIABLE, KeysUnusable, Sealed, load
from tests.support.requirements import requirement

VALUE = "correct horse battery"


def key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@requirement("vai:control-secret-at-rest")
def test_a_value_is_opened_by_its_key_in_its_place_and_nowhere_else(tmp_path: Path) -> None:
    ring = load(tmp_path, {})
    sealed = ring.seal(VALUE, "org_1/key/1")
    assert VALUE.encode() not in sealed.data and ring.open(sealed, "org_1/key/1") == VALUE
    assert ring.seal(VALUE, "org_1/key/1").data != sealed.data  # a nonce of its own each time
    for data, bound in (
        (sealed, "org_2/key/1"),
        (sealed, "org_1/key/2"),
        (sealed._replace(data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])), "org_1/key/1"),
        (sealed._replace(nonce=bytes(12)), "org_1/key/1"),
    ):
        with pytest.raises(KeysUnusable, match="not what was sealed"):
            ring.open(data, bound)
    with pytest.raises(KeysUnusable, match="which is not in"):
        ring.open(Sealed("0" * 16, sealed.nonce, sealed.data), "org_1/key/1")


def test_the_first_start_makes_a_file_for_nobody_elses_eyes_and_the_next_one_reads_it(tmp_path: Path) -> None:
    first = load(tmp_path, {})
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600 and str(tmp_path) in first.place
    assert load(tmp_path, {}).current == first.current
    (tmp_path / FILE_NAME).chmod(0o644)
    with pytest.raises(KeysUnusable, match="others can read"):
        load(tmp_path, {})


def test_the_operators_own_keys_come_first_and_are_never_written(tmp_path: Path) -> None:
    old, new = key(), key()
    sealed = load(tmp_path, {VARIABLE: old}).seal(VALUE, "x")
    ring = load(tmp_path, {VARIABLE: f"{new},{old}"})
    assert ring.open(sealed, "x") == VALUE and ring.seal(VALUE, "x").key_id != sealed.key_id
    file = tmp_path / "own.key"
    file.write_text(new + "\n")
    file.chmod(0o600)
    assert load(tmp_path, {FILE_VARIABLE: str(file)}).current == ring.current
    with pytest.raises(KeysUnusable, match="put the new one first"):
        ring.add_key()
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize("text", ["short", base64.b64encode(b"x" * 31).decode(), "é" * 44])
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeysUnusable) as caught:
        load(tmp_path, {VARIABLE: text})
    assert text not in str(caught.value)


def test_a_file_that_is_named_must_have_a_key(tmp_path: Path) -> None:
    with pytest.raises(KeysUnusable, match="no key"):
        load(tmp_path, {FILE_VARIABLE: str(tmp_path / "none")})
    link = tmp_path / FILE_NAME
    os.symlink("/etc/passwd", link)
    with pytest.raises(KeysUnusable, match="cannot be read"):
        load(tmp_path, {})


def test_a_new_key_seals_from_then_on_and_the_old_ones_go_when_nothing_needs_them(tmp_path: Path) -> None:
    ring = load(tmp_path, {})
    old = ring.seal(VALUE, "x")
    assert ring.add_key() == ring.current != old.key_id
    assert ring.open(old, "x") == VALUE == load(tmp_path, {}).open(old, "x")
    ring.forget_others()
    for gone in (ring, load(tmp_path, {})):
        with pytest.raises(KeysUnusable):
            gone.open(old, "x")


@pytest.mark.parametrize("locked", [False, True])
def test_where_the_system_has_a_keyring_the_key_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    kept: dict[tuple[str, str], str] = {}

    class KeyringError(Exception):
        pass

    def put(service: str, user: str, password: str) -> None:
        if locked:
            raise KeyringError
        kept[service, user] = password

    def get(service: str, user: str) -> str | None:
        if locked:
            raise KeyringError
        return kept.get((service, user))

    library: Any = SimpleNamespace(
        set_password=put, get_password=get, errors=SimpleNamespace(KeyringError=KeyringError)
    )
    library.__spec__ = SimpleNamespace(name="keyring")
    monkeypatch.setitem(sys.modules, "keyring", library)
    ring = load(tmp_path, {})
    assert load(tmp_path, {}).current == ring.current
    assert (tmp_path / FILE_NAME).exists() == locked and bool(kept) != locked
