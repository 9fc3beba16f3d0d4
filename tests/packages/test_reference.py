"""The grammar of references."""

from __future__ import annotations

import pytest

from plugbay.host.config import config
from plugbay.packages.errors import PackageRefused
from plugbay.packages.reference import Reference, Registries, is_named, is_reference, parse, tag_of

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://ghcr.io/acme/devkit:0.1.0", Reference("ghcr.io", "acme/devkit", "0.1.0")),
        ("ghcr.io/acme/devkit", Reference("ghcr.io", "acme/devkit")),
        ("localhost:5000/a", Reference("localhost:5000", "a")),
        (f"oci://[::1]:5000/a/b-c__d@{DIGEST}", Reference("[::1]:5000", "a/b-c__d", None, DIGEST)),
        (f"r.example/a:1@{DIGEST}", Reference("r.example", "a", "1", DIGEST)),
    ],
)
def test_a_reference_is_read_and_written(text: str, expected: Reference) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oci://",
        "devkit",
        "https://ghcr.io/acme/devkit",
        "oci://ghcr.io/Acme/devkit",
        "oci://ghcr.io/acme/../devkit",
        "oci://ghcr.io//devkit",
        "oci://ghcr.io/acme/devkit:",
        "oci://ghcr.io/acme/devkit@sha256:short",
        f"oci://ghcr.io/acme/devkit@sha512:{'a' * 128}",
        "oci://user:pass@ghcr.io/acme/devkit",
        "oci://ghcr.io/acme/devkit?x=1",
        f"oci://ghcr.io/{'a/' * 200}b",
    ],
)
def test_an_invalid_reference_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PackageRefused, match="oci://registry"):
        parse(text)


def test_the_digest_is_asked_for_before_the_tag() -> None:
    assert parse(f"r.example/a:1@{DIGEST}").wanted == DIGEST
    assert (parse("r.example/a:1").wanted, parse("r.example/a").wanted) == ("1", "latest")
    assert parse("r.example/a:1").pinned(DIGEST).wanted == DIGEST


@pytest.mark.parametrize(
    ("registry", "local"),
    [
        ("localhost", True),
        ("LOCALHOST:5000", True),
        ("127.0.0.1:5000", True),
        ("127.1.2.3", True),
        ("[::1]:5000", True),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("10.0.0.1:5000", False),
        ("ghcr.io", False),
    ],
)
def test_only_this_machine_is_local(registry: str, local: bool) -> None:
    assert parse(f"{registry}/a").is_local is local


def test_a_version_is_a_tag_that_registries_take() -> None:
    assert [tag_of(text) for text in ("1.0.0", "1.0.0+linux", "-1", "x" * 200)] == [
        "1.0.0",
        "1.0.0_linux",
        "_-1",
        "x" * 128,
    ]


def test_a_file_is_no_reference() -> None:
    assert is_reference("oci://a/b")
    assert not is_reference("a/b.tar.gz")


def test_exceptions_for_registries_are_those_of_the_file() -> None:
    text = '[registries."r.test:5000"]\nprivate = true\n[registries.plain]\nplain_http = true\n'
    assert Registries.of(config.parse(text).registries) == Registries(frozenset({"r.test:5000"}), frozenset({"plain"}))


@pytest.mark.parametrize(
    ("name", "host", "port", "expected"),
    [
        ("r.test", "r.test", 443, True),
        ("r.test", "r.test", 80, True),
        ("r.test", "r.test", 5000, False),
        ("r.test:5000", "r.test", 5000, True),
        ("r.test:5000", "r.test", 443, False),
        ("[::1]:5000", "::1", 5000, True),
        ("[::1]", "::1", 443, True),
    ],
)
def test_a_registry_is_named_with_its_port_unless_it_is_a_usual_one(
    name: str, host: str, port: int, expected: bool
) -> None:
    assert is_named({name}, host, port) is expected
