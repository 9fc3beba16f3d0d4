"""Shared by the package commands."""

from __future__ import annotations

import json

import pytest
import typer

from plugbay.cli.packages.common import format_size, report_refusals
from plugbay.model.errors import ConfigInvalid, ManifestInvalid, Problem
from plugbay.packages.errors import PackageRefused, Reason


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (20 << 10, "20 KiB"),
        (5 << 20, "5.0 MiB"),
        (50 << 20, "50 MiB"),
        (5000 << 30, "5000 GiB"),
    ],
)
def test_sizes_are_words(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refusal_is_reported_and_has_its_status(capfdbinary: pytest.CaptureFixture[bytes], as_json: bool) -> None:
    with pytest.raises(typer.Exit) as caught, report_refusals(as_json):
        raise PackageRefused(Reason.TAMPERED, "it was changed", file="a")
    assert caught.value.exit_code == 6
    out = capfdbinary.readouterr().out
    if as_json:
        assert json.loads(out)["refused"]["reason"] == "tampered"
    else:
        assert out == b""


@pytest.mark.parametrize(
    ("error", "reason"), [(ManifestInvalid, "invalid_manifest"), (ConfigInvalid, "invalid_config")]
)
def test_a_file_of_no_use_is_reported_as_json_too(
    capfdbinary: pytest.CaptureFixture[bytes], error: type[ManifestInvalid], reason: str
) -> None:
    problem = Problem("missing_field", "id", "required, but missing")
    with pytest.raises(typer.Exit) as caught, report_refusals(as_json=True):
        raise error("x.tgz", [problem])
    assert caught.value.exit_code == 3
    shown = json.loads(capfdbinary.readouterr().out)["refused"]
    assert (shown["reason"], shown["problems"]) == (reason, [problem.to_json()])


def test_an_unusable_file_is_reported_with_a_hint(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    problem = Problem("missing_field", "id", "required, but missing")
    with pytest.raises(typer.Exit) as caught, report_refusals(as_json=False):
        raise ConfigInvalid("trust.json", [problem])
    said = capfdbinary.readouterr().err
    assert (caught.value.exit_code, b"trust.json cannot be used" in said, b"or delete it" in said) == (3, True, True)
    with pytest.raises(ManifestInvalid), report_refusals(as_json=False):  # said as in every other command
        raise ManifestInvalid("x.tgz", [problem])
