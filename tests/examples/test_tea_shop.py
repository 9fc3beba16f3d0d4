"""One source under every contract: the same call ends in the same way, and where it does not, this says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.host.discovery.folders import inspect
from tests.sdk.everywhere import CONTRACTS, REACHES, Outcome, Reach, hosted, loaded
from tests.support.commands import plugbay
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive

SHOP = Path(__file__).parents[2] / "examples" / "tea-shop"

TEA = {"name": "sencha", "price": 4.2}
MAY = "2026-05-17"


def failed(code: str, message: str) -> Outcome:
    return Outcome(code=code, message=message)


def bug(message: str) -> Outcome:
    return failed("plugin_error", message)


def bill(lines: list[str], total: float, *kinds: str) -> Outcome:
    return Outcome({"lines": lines, "total": total, "due": "2026-05-31", "kinds": list(kinds)})


def spelt(text: str, *names: str) -> Outcome:
    return Outcome({"text": text, "names": list(names), "length": len(text)})


HEAP = 250_000
"""Leaves of four bytes each: a little less than the smallest limit of a contract, 1 MiB of rune."""

SAME: dict[str, tuple[str, Any, Outcome]] = {
    "an order": ("quote", {"items": [TEA], "ordered": MAY}, bill(["1 x small sencha"], 4.2, "sencha")),
    "an empty order": ("quote", {"items": [], "ordered": MAY}, bill([], 0)),
    "defaults, an enum and a set": (
        "quote",
        {"items": [{**TEA, "size": "large", "count": 2}, {**TEA, "name": "assam"}, TEA], "ordered": MAY},
        bill(["2 x large sencha", "1 x small assam", "1 x small sencha"], 16.8, "assam", "sencha"),
    ),
    "a whole number where a fraction may be": (
        "quote",
        {"items": [{"name": "mate", "price": 3, "count": 2.0}], "ordered": MAY, "express": True},
        bill(["2 x small mate"], 10.5, "mate"),
    ),
    "an async tool": ("deliver", {"address": {"city": "Lima"}}, Outcome({"to": "Lima", "how": "foot", "tip": None})),
    "an async tool with everything": (
        "deliver",
        {"address": {"street": "Calle 1"}, "how": "bike", "tip": 1.5},
        Outcome({"to": "the counter", "how": "bike", "tip": 1.5}),
    ),
    "a schema of the author's, and a date": (
        "label",
        {"tea": "pu-erh", "best_before": MAY},
        Outcome({"text": "pu-erh, 100 g, best before 17 May 2026"}),
    ),
    "accents": ("names", {"text": "té"}, spelt("té", "LATIN SMALL LETTER T", "LATIN SMALL LETTER E WITH ACUTE")),
    "beyond the first plane": ("names", {"text": "🍵"}, spelt("🍵", "TEACUP WITHOUT HANDLE")),
    "right to left": ("names", {"text": "شا"}, spelt("شا", "ARABIC LETTER SHEEN", "ARABIC LETTER ALEF")),
    "what breaks lines": (
        "names",
        {"text": "\u2028\n\r"},
        spelt("\u2028\n\r", "LINE SEPARATOR", "unnamed", "unnamed"),
    ),
    "NUL and quotes": (
        "names",
        {"text": '\x00"\\'},
        spelt('\x00"\\', "unnamed", "QUOTATION MARK", "REVERSE SOLIDUS"),
    ),
    "nothing at all": ("names", {"text": ""}, spelt("")),
    "a large result": ("leaves", {"count": HEAP}, Outcome({"heap": "🍃" * HEAP})),
    "an empty result": ("leaves", {"count": 0}, Outcome({"heap": ""})),
    "pieces": ("recite", {}, Outcome("1. tea\n2. tea\n3. tea\n")),
    "no pieces": ("recite", {"lines": 0}, Outcome("")),
    "pieces that end in an error": ("recite", {"lines": 5}, bug("nobody knows more than four lines")),
    "prints, logs and progress on the way": ("brew", {"kind": "green"}, Outcome({"cups": 2, "kind": "green"})),
    "an error with a code of the author's": ("brew", {"kind": "coffee"}, bug("this is a tea shop")),
    "an error about the input": ("brew", {"kind": "stone"}, failed("invalid_input", "a stone is no tea")),
    "a bug": ("brew", {"kind": "broken pot"}, bug("ZeroDivisionError: division by zero")),
    "sys.exit": ("brew", {"kind": "exit"}, bug("SystemExit: closed for today")),
    "a result that is not JSON": (
        "brew",
        {"kind": "nothing"},
        bug("the result cannot be sent: at /cups: nan has no JSON form"),
    ),
    "a result that contains itself": (
        "brew",
        {"kind": "black hole"},
        bug("the result cannot be sent: at /inside: the value contains itself"),
    ),
    "a type that only the annotation says": (
        "label",
        {"tea": 1, "best_before": MAY, "grams": 0},
        failed("invalid_input", "tea: must be a string, not a number; grams: must be at least 1"),
    ),
    "a date that is none": (
        "quote",
        {"items": [TEA], "ordered": "someday"},
        failed("invalid_input", "ordered: must be a date such as 2026-05-17, not 'someday'"),
    ),
    "what only the code of a class knows": (
        "quote",
        {"items": [TEA, {"name": "espresso", "price": 2, "size": "large"}], "ordered": MAY},
        failed("invalid_input", "items[1]: there is no large espresso"),
    ),
    "keys that are missing and unknown": (
        "label",
        {"tee": "x"},
        failed(
            "invalid_input",
            "tea: is required; best_before: is required; tee: is unknown; there is tea, best_before, grams",
        ),
    ),
    "a short wait": ("sit", {"seconds": 0}, Outcome({"sat": 0.0})),
    "in time": ("steep", {"seconds": 0}, Outcome({"ready": True, "in time": True})),
}
"""What ends the same under every contract."""

SCHEMA = "the input does not fit quote's schema: "

DIFFERENT: dict[str, tuple[str, Any, dict[str, Outcome]]] = {
    # Hosts that know the schema refuse by it, in the words of JSON Schema; ainb has no schemas, and the SDK refuses.
    "a price that is a text": (
        "quote",
        {"items": [TEA, TEA, {**TEA, "price": "4"}], "ordered": MAY},
        {
            **dict.fromkeys(CONTRACTS, failed("invalid_input", f'{SCHEMA}items/2/price: "4" is not of type "number"')),
            "ainb": failed("invalid_input", "items[2].price: must be a number, not a string"),
        },
    ),
    # Only rune and vai have a word for what was not found; a command line can say anything, and so can `_meta` of MCP.
    "what was not found": (
        "brew",
        {"kind": "secret"},
        {
            **dict.fromkeys(("rune", "ainb", "vai", "mcp"), failed("not_found", "there is no such tea")),
            **dict.fromkeys(("nexo", "kaged"), bug("there is no such tea")),
        },
    ),
    # Only nexo has a number for what may be tried again; vai has an outcome for it, which is seen elsewhere.
    "not now": (
        "brew",
        {"kind": "sold out"},
        {
            **dict.fromkeys(("rune", "kaged", "vai"), bug("come back tomorrow")),
            **dict.fromkeys(("nexo", "ainb", "mcp"), failed("unavailable", "come back tomorrow")),
        },
    ),
    # The author's own deadline: under vai the host knows it, too, and its clock decides.
    **{
        f"{tool} is too late": (
            tool,
            {"seconds": 60},
            {
                **dict.fromkeys(("rune", "nexo", "kaged"), bug("the deadline has passed")),
                **dict.fromkeys(("ainb", "mcp"), failed("cancelled", "the deadline has passed")),
                "vai": failed("timeout", "it was stopped at the deadline"),
            },
        )
        for tool in ("steep", "steep_later")
    },
    # A service that only hosts of nexo have; this memory is empty.
    "a service": (
        "ask_memory",
        {"what": "tea"},
        {
            **{
                contract: failed(
                    "unavailable" if contract in ("ainb", "mcp") else "plugin_error",
                    f"it needs the host: this host speaks {contract} and does not offer ctx.memory; hosts of nexo do",
                )
                for contract in CONTRACTS
            },
            "nexo": Outcome({"found": []}),
        },
    ),
}
"""What contracts end differently, and why."""

LIMITS = {"rune": 1_048_576, "nexo": None, "kaged": 4_000_000, "ainb": None, "vai": 8_388_608, "mcp": None}
"""Bytes of a result; None where one of eight million is carried. vai and MCP carry it twice, as text and as a value."""


@pytest.fixture(scope="module")
def everywhere() -> Iterator[dict[str, Reach]]:
    """The shop under every contract at once, and open: where time counts, starting a process is not part of it."""
    with ExitStack() as stack:
        reaches = {contract: stack.enter_context(hosted(SHOP, contract)) for contract in CONTRACTS}
        assert {reach.call("sit", {"seconds": 0}).value["sat"] for reach in reaches.values()} == {0.0}
        yield reaches


def test_the_table_is_worth_its_name() -> None:
    assert len(SAME) + len(DIFFERENT) >= 25
    called = {tool for tool, *_ in (*SAME.values(), *DIFFERENT.values())}
    assert called == set(loaded(SHOP).tools)


@pytest.mark.parametrize("what", SAME)
def test_the_same_call_ends_in_the_same_way_under_every_contract(everywhere: dict[str, Reach], what: str) -> None:
    tool, given, outcome = SAME[what]
    assert {contract: reach.call(tool, given) for contract, reach in everywhere.items()} == dict.fromkeys(
        CONTRACTS, outcome
    )


@pytest.mark.parametrize("what", DIFFERENT)
def test_where_contracts_differ_the_difference_is_this(everywhere: dict[str, Reach], what: str) -> None:
    tool, given, outcomes = DIFFERENT[what]
    assert {contract: reach.call(tool, given) for contract, reach in everywhere.items()} == outcomes


def test_a_result_that_is_too_large_is_an_error_where_the_contract_has_a_limit(everywhere: dict[str, Reach]) -> None:
    for contract, reach in everywhere.items():
        outcome, limit = reach.call("leaves", {"count": 2_000_000}), LIMITS[contract]
        assert f"{limit:,}" in outcome.message if limit else len(outcome.value["heap"]) == 2_000_000, contract


def test_whoever_waits_no_longer_has_a_timeout_and_the_next_call_an_answer(everywhere: dict[str, Reach]) -> None:
    for contract, reach in everywhere.items():
        assert reach.call("sit", {"seconds": 60}, timeout=0.3).code == "timeout", contract
        assert reach.call("sit", {"seconds": 0}) == Outcome({"sat": 0.0}), contract


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_caller_that_is_cancelled_leaves_the_plugin_to_others(contract: str) -> None:
    async def main() -> Any:
        manifest = SHOP / REACHES[contract].manifest
        async with Host.load(manifest, grant_all=True, unconfined=True, eager=False) as host:
            names = {export.split("/")[-1]: export for export in host.exports()}
            found = (full for short, full in names.items() if short.endswith("sit"))
            name = next(found, names.get("tea-shop", "tea-shop/sit"))  # MCP says what it offers when it is greeted

            def call(seconds: float) -> Any:
                words = {"argv": ["sit", json.dumps({"seconds": seconds})]}
                return host.call(name, words if contract == "ainb" else {"seconds": seconds}, timeout=PATIENCE)

            await call(0)
            waiting = asyncio.ensure_future(call(60))
            await asyncio.sleep(0)
            waiting.cancel()
            ended = (await asyncio.gather(waiting, return_exceptions=True))[0]
            await call(0)
            return ended

    assert isinstance(asyncio.run(main()), asyncio.CancelledError)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_progress_is_told_where_the_contract_has_a_word_for_it(contract: str) -> None:
    async def main() -> list[Any]:
        told: list[Any] = []
        manifest = SHOP / REACHES[contract].manifest
        async with Host.load(manifest, grant_all=True, unconfined=True, eager=False) as host:
            found = (name for name in host.exports() if name.endswith(("brew", "/tea-shop")))
            name = next(found, "tea-shop/brew")
            given = {"argv": ["brew", '{"kind": "green"}']} if contract == "ainb" else {"kind": "green"}
            result = await host.attempt(name, given, timeout=PATIENCE, on_progress=told.append)
        assert result.failure is None
        return told

    told = [json.loads(bytes(item)) if not isinstance(item, dict) else item for item in asyncio.run(main())]
    expected = {
        "vai": [{"type": "progress", "message": "brewing green", "share": 0.5}],
        "mcp": [{"progress": 1, "message": "brewing green"}],
    }
    assert told == expected.get(contract, [])


# The files.


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_manifest_is_good_and_written_from_the_source(contract: str) -> None:
    found = inspect(SHOP, contract)
    assert (found.contract, found.errors) == (contract, ())
    done = plugbay("manifest", SHOP, "--contract", contract, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@exhaustive
@pytest.mark.parametrize("contract", CONTRACTS)
def test_it_conforms_to_every_contract(contract: str) -> None:
    spec = inspect(SHOP, contract).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis for axis in report.axes if axis.status in ("failed", "advice")] == []
    assert report.passed > 5
