"""The error index and the table of services are complete: each is held against the code that it is about."""

from __future__ import annotations

import re

import plugbay
from plugbay import sdk
from plugbay.cli.exit_codes import BY_CODE, Exit
from plugbay.model.errors import CODES
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    Publish,
    ReadFile,
    RecallMemory,
    WriteLog,
)
from plugbay.sdk.contract_support import CONTRACTS
from plugbay.sdk.errors import HandlerError, ServiceError
from plugbay.sdk.services.host_client import unsupported_service
from tests.docs.test_snippets import ROOT

ASKED = (
    RecallMemory("", "", 1),
    CompleteChat("", "", []),
    Publish("", {}),
    GetStored(""),
    GetSnapshot(""),
    InvokeAction("", b""),
    ReadFile(""),
    FetchUrl("", "GET", None, []),
    WriteLog("info", "", None),
    AskUser(""),
)
"""A question to each service."""


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") or line.startswith("|-")]
    assert lines, f"{page} has no table below {heading}"
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def exceptions(module: object, base: type[Exception]) -> dict[str, type[Exception]]:
    """What a module offers that can be raised, by name."""
    offered = {name: getattr(module, name) for name in module.__all__}  # type: ignore[attr-defined]
    return {name: thing for name, thing in offered.items() if isinstance(thing, type) and issubclass(thing, base)}


def test_every_failure_code_is_listed_once_with_cause_remedy_and_status() -> None:
    found = rows("errors.md", "Failure codes")
    assert sorted(row[0] for row in found) == sorted(f"`{code}`" for code in CODES)
    for code, cause, remedy, statuses in found:
        assert cause and remedy
        assert str(int(BY_CODE[code.strip("`")])) in statuses.split(", "), code


def test_every_error_of_a_handler_is_listed_once_with_the_code_that_its_caller_sees() -> None:
    classes = exceptions(sdk, HandlerError)
    found = rows("errors.md", "Errors a handler raises")
    assert sorted(row[0] for row in found) == sorted(f"`{name}`" for name in classes)
    for name, cause, seen, remedy in found:
        cls = classes[name.strip("`")]
        assert issubclass(cls, HandlerError) and cause and remedy
        assert seen == f"`{cls.meaning}`" + " ↻" * cls.retryable, name


def test_every_other_error_is_listed_once() -> None:
    services = [row[0] for row in rows("errors.md", "Errors of the host's services")]
    assert sorted(services) == sorted(f"`{name}`" for name in exceptions(sdk, ServiceError))
    seen = [row[0] for row in rows("errors.md", "Errors an application sees")]
    assert sorted(seen) == sorted(f"`{name}`" for name in exceptions(plugbay, plugbay.PlugbayError))
    assert {*exceptions(sdk, Exception)} == {*exceptions(sdk, HandlerError), *exceptions(sdk, ServiceError)}


def test_every_exit_status_is_listed_in_order() -> None:
    found = rows("errors.md", "Exit statuses")
    assert [row[0] for row in found] == [str(int(status)) for status in Exit]
    assert all(cause and remedy for _, cause, remedy in found)


def test_the_table_of_services_says_which_contracts_have_them() -> None:
    listed = {row[0].split()[0]: row[1:] for row in rows("author.md", "What a handler can ask for")}
    for op in ASKED:
        absent = unsupported_service(op, "")
        cells = zip(CONTRACTS, listed[f"`ctx.{absent.service}`"], strict=True)
        assert [name for name, cell in cells if cell == "✓"] == list(absent.contracts), absent.service
