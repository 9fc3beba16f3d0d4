"""Names, versions, programs and limits make sense."""

from __future__ import annotations

import pytest

from plugbay.contracts.vai.rules import INTERPRETERS, LONGEST_MS
from tests.contracts.vai.manifests import Found, export, good, manifest, parsed, problems
from tests.support.requirements import requirement


def error(code: str, path: str) -> list[Found]:
    return [("error", code, path)]


def warning(code: str, path: str) -> list[Found]:
    return [("warning", code, path)]


@requirement("vai:manifest-package-id")
@pytest.mark.parametrize("id", ["acme/devkit", "a/b", "0/1", "a.b/c-d_e", "a./b", f"{'a' * 64}/{'b' * 64}"])
def test_a_package_is_named_by_its_publisher_and_its_own_name(id: str) -> None:
    assert good(manifest(package_id=f'"{id}"')).id == id


@requirement("vai:manifest-package-id")
@pytest.mark.parametrize(
    "id",
    [
        "devkit",
        "Acme/devkit",
        "acme/devkit/x",
        "acme/",
        "/devkit",
        "../etc",
        "acme/..",
        ".a/b",
        "a/.b",
        "a..b/c",
        "a/b.",
        "a /b",
        f"{'a' * 65}/b",
        "a\\\\b/c",
        "",
        "ä/b",
    ],
)
def test_anything_else_is_no_package_id(id: str) -> None:
    assert problems(manifest(package_id=f'"{id}"')) == error("invalid_package_id", "package_id")


@requirement("vai:manifest-version")
@pytest.mark.parametrize("version", ["0.1.0", "1.0.0-rc.1", "1.0.0+b.7", "10.20.30-a-b.0+x"])
def test_a_version_is_semantic(version: str) -> None:
    assert good(manifest(version=f'"{version}"')).version == version


@requirement("vai:manifest-version")
@pytest.mark.parametrize(
    "version", ["1.0", "v1.0.0", "latest", "1.0.0.0", "01.0.0", "1.0.0-01", ">=1.0.0", "", "1.0.0\\n"]
)
def test_anything_else_is_no_version(version: str) -> None:
    assert problems(manifest(version=f'"{version}"')) == error("invalid_version", "version")


@requirement("vai:manifest-versions-of-the-contract")
def test_another_contract_protocol_or_transport_is_refused() -> None:
    assert problems(manifest(api_version='"vai.plugin.v2"')) == error("unsupported_api_version", "api_version")
    runtime = {"protocol": '"vai.rpc.v2"', "transport": '"http"'}
    assert problems(manifest(runtime=runtime)) == [
        ("error", "unsupported_protocol", "runtime.protocol"),
        ("error", "unsupported_transport", "runtime.transport"),
    ]


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("oci://ghcr.io/acme/devkit:1.2.3", []),
        (f"oci://localhost:5000/acme/devkit@{DIGEST}", []),
        (f"oci://ghcr.io/acme/devkit:1.2.3@{DIGEST}", []),
        ("oci://ghcr.io/acme/devkit:1.2.4", warning("source_mismatch", "source")),
        ("https://example.com/devkit", warning("invalid_source", "source")),
        ("", warning("invalid_source", "source")),
    ],
)
def test_a_source_is_only_ever_warned_about(source: str, found: list[Found]) -> None:
    assert problems(manifest(source=f'"{source}"')) == found


def test_a_tag_writes_the_plus_of_a_version_as_an_underscore() -> None:
    good(manifest(version='"1.0.0+b7"', source='"oci://r/a/b:1.0.0_b7"'))


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize("words", ['["./bin/plugin"]', '["./bin/plugin", "--fast", "a b"]'])
def test_the_program_is_in_the_package(words: str) -> None:
    spec = good(manifest(runtime={"entrypoint": words}))
    assert spec.command[0] == "./bin/plugin"


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize("name", INTERPRETERS)
def test_or_it_is_started_by_an_interpreter_of_the_host(name: str) -> None:
    assert good(manifest(runtime={"entrypoint": f'["{name}", "main.py"]'})).command == (name, "main.py")


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize(
    ("words", "at"),
    [
        ("[]", ""),
        ('[""]', "[0]"),
        ('["/usr/bin/env", "x"]', "[0]"),
        ('["../plugin"]', "[0]"),
        ('["./bin/../../plugin"]', "[0]"),
        ('["./bin/other"]', "[0]"),
        ('["plugin"]', "[0]"),
        ('["bash", "-c", "x"]', "[0]"),
        ('["./bin/plugin", "a\\u0000b"]', "[1]"),
    ],
)
def test_any_other_program_is_refused(words: str, at: str) -> None:
    assert problems(manifest(runtime={"entrypoint": words})) == error("invalid_entrypoint", f"runtime.entrypoint{at}")


@requirement("vai:manifest-exports")
def test_a_package_without_exports_is_refused() -> None:
    text = manifest().partition("[runtime]")
    assert problems(f"{text[0]}exports = []\n[runtime]{text[2].partition('[[exports]]')[0]}") == error(
        "no_exports", "exports"
    )
    assert problems(f"{text[0]}[runtime]{text[2].partition('[[exports]]')[0]}") == error("missing_field", "exports")


@requirement("vai:manifest-exports")
def test_no_two_exports_have_one_id_whatever_their_kinds() -> None:
    assert problems(manifest(export("tool"), export("hook"))) == error("duplicate_export_id", "exports[1].id")


@requirement("vai:manifest-exports")
@pytest.mark.parametrize("id", ["", "X", "1a", "a-b", "a.b", "a/b", "a" * 65])
def test_the_id_of_an_export_is_one_lower_case_word(id: str) -> None:
    assert problems(manifest(export(id=id))) == error("invalid_export_id", "exports[0].id")


@requirement("vai:manifest-timeout")
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "20000.0", "true", '"20000"', "[1]"])
def test_a_timeout_is_a_whole_number_of_milliseconds(value: str) -> None:
    assert problems(manifest(export(default_timeout_ms=value))) == error(
        "invalid_timeout", "exports[0].default_timeout_ms"
    )


@requirement("vai:manifest-timeout")
def test_a_timeout_beyond_an_hour_is_cut_and_warned_about() -> None:
    assert good(manifest(export(default_timeout_ms=str(LONGEST_MS)))).exports[0].facts["timeout_ms"] == LONGEST_MS
    spec, found = parsed(manifest(export(default_timeout_ms=str(LONGEST_MS + 1))))
    assert [(item.severity, item.code) for item in found] == [("warning", "timeout_clamped")]
    assert spec is not None
    assert spec.exports[0].facts["timeout_ms"] == LONGEST_MS


@requirement("vai:manifest-concurrency")
@pytest.mark.parametrize("value", ["0", "-1", "1.0", "true", '"4"'])
def test_at_least_one_at_a_time(value: str) -> None:
    assert problems(manifest(export(max_concurrency=value))) == error(
        "invalid_concurrency", "exports[0].max_concurrency"
    )
    assert good(manifest(export(max_concurrency="4"))).exports[0].facts["max_concurrency"] == 4


@requirement("vai:manifest-execution-class")
def test_a_class_the_contract_does_not_have_is_refused() -> None:
    assert problems(manifest(export(execution_class='"fast"'))) == error("invalid_enum", "exports[0].execution_class")


@requirement("vai:manifest-execution-class")
def test_inline_code_that_wants_the_network_is_warned_about() -> None:
    text = manifest(export("tool", '[exports.permissions]\nnetwork = "egress"', execution_class='"inline"'))
    assert problems(text) == warning("inline_egress", "exports[0].execution_class")
