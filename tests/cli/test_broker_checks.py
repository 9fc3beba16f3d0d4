"""`plugbay doctor` and the broker: whether this host could be joined with others, and what to do when not."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import broker_checks as module
from plugbay.cli.broker_checks import broker_checks
from plugbay.host.config.config import Config, parse
from tests.support.nats_server import nats_server


def test_without_a_broker_nothing_is_said() -> None:
    assert list(broker_checks(Config())) == []


def test_a_server_is_joined_for_a_moment_and_one_that_is_gone_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nats_server(tmp_path) as server:
        config = parse(f'[broker]\nurl = "{server.url}"\ntopics = ["a.>", "b"]')
        (check,) = broker_checks(config)
        assert (check.id, check.status, check.detail) == (
            "broker",
            "ok",
            f"joined through {server.url}, shared: a.>, b",
        )
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    (check,) = broker_checks(config)
    assert check.is_finding and "refused" in check.detail and "start the server" in check.fix


def test_what_is_wrong_in_the_file_is_said_as_it_is() -> None:
    (check,) = broker_checks(parse('[broker]\nurl = "nats://h"\ntopics = ["a"]\ntoken_env = "NOBODY_HAS_SET_THIS"'))
    assert check.status == "error" and "NOBODY_HAS_SET_THIS is not set" in check.detail
    (check,) = broker_checks(parse('[broker]\nurl = "nats://h"'))
    assert check.status == "warning" and "topics" in check.fix
