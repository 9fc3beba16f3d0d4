"""Challenges and credentials, as registries and `docker login` write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugbay.packages import login


def test_a_challenge_is_read() -> None:
    text = 'Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push"'
    found = login.parse_challenge(text)
    assert found.scheme == "bearer"
    assert found.parameters["realm"] == "https://auth.example/token"
    assert found.parameters["scope"] == "repository:a/b:pull,push"
    assert login.parse_challenge('Basic realm="a \\"quoted\\" one"').parameters == {"realm": 'a "quoted" one'}
    assert login.parse_challenge("") == login.Challenge("", {})


def test_the_file_of_docker_login_is_found_where_docker_looks() -> None:
    assert login.docker_config({"HOME": "/home/ada"}) == Path("/home/ada/.docker/config.json")
    assert login.docker_config({"HOME": "/home/ada", "DOCKER_CONFIG": "/etc/d"}) == Path("/etc/d/config.json")


def write(folder: Path, document: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def test_credentials_are_those_of_the_registry(tmp_path: Path) -> None:
    header = login.basic("ada", "open:sesame").removeprefix("Basic ")
    path = write(tmp_path, {"auths": {"r.example": {"auth": header}, "https://s.example": {"auth": header}}})
    assert login.credentials("r.example", path) == ("ada", "open:sesame")
    assert login.credentials("s.example", path) == ("ada", "open:sesame")
    assert login.credentials("t.example", path) is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"auths": []},
        {"auths": {"r.example": {}}},
        {"auths": {"r.example": {"auth": 1}}},
        {"auths": {"r.example": {"auth": "bm9jb2xvbg=="}}},
        {"credsStore": "helper", "auths": {"r.example": {}}},
    ],
)
def test_a_file_without_them_has_none(tmp_path: Path, document: object) -> None:
    assert login.credentials("r.example", write(tmp_path, document)) is None
    assert login.credentials("r.example", tmp_path / "gone") is None
