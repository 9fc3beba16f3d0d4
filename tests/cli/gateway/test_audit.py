"""`plugbay audit verify` checks the log of a server, and of a database without one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from plugbay.cli.exit_codes import Exit
from plugbay.server.domain.principal import OPERATOR
from tests.cli.conftest import Run
from tests.server.test_server import served
from tests.support.databases import KINDS, database
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import run_on
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

HASH = "0" * 64


def words(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


def fill(url: str, data: Path) -> None:
    """A log of one org, and of the operator."""

    async def main() -> None:
        async with gateway_at(url, data) as gateway:
            await make_org(gateway)
            await gateway.retention.prune(OPERATOR)

    run_on("uvloop")(main)


@requirement("vai:control-audit-verify")
@pytest.mark.parametrize("kind", first_alone(KINDS))
def test_a_database_is_checked_without_a_server(kind: str, run: Run, tmp_path: Path) -> None:
    with database(kind, tmp_path) as url:
        fill(url, tmp_path)
        where = ["--data", str(tmp_path)] if kind == "sqlite" else ["--database", url]
        done = run("audit", "verify", *where, "--json")
        assert done.code == Exit.OK, done.err
        found = done.json
        chains = {chain["chain"]: chain for chain in found["chains"]}
        assert found["valid"] and {name: chain["entries"] for name, chain in chains.items()} == {"*": 1, "org_1": 2}
        kept = chains["org_1"]["head"]
        assert run("audit", "verify", *where, "--head", kept).code == Exit.OK
        later = kept.replace(":2:", ":3:")
        done = run("audit", "verify", *where, "--head", later)
        assert done.code == Exit.FINDINGS and "the entry 3 was removed from the end" in words(done.out)
        assert kept in done.out, "the head is printed"


@requirement("vai:control-audit-verify")
def test_a_broken_entry_is_named_and_is_a_finding(run: Run, tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as url:
        fill(url, tmp_path)
        with closing(sqlite3.connect(tmp_path / "plugbay.db")) as file, file:
            file.execute("UPDATE audit SET action = 'org.delete' WHERE action = 'org.create'")
        done = run("audit", "verify", "--data", str(tmp_path), "--json")
        assert done.code == Exit.FINDINGS
        (broken,) = [chain["broken"] for chain in done.json["chains"] if chain["broken"]]
        assert (broken["kind"], broken["position"]) == ("changed", 1) and broken["entry_id"].startswith("aud_")
        done = run("audit", "verify", "--data", str(tmp_path))
        assert done.code == Exit.FINDINGS and f"{broken['entry_id']} was changed" in words(done.out)


@requirement("vai:control-audit-verify")
def test_a_server_checks_its_own_log(run: Run, tmp_path: Path) -> None:
    with served(tmp_path, "--data", "data") as server, server.client() as client:
        assert client.post("/v1/orgs", json={"name": "Acme", "id": "acme"}).status_code == 201
        named = {"PLUGBAY_SERVER": server.facts["url"], "PLUGBAY_TOKEN": server.facts["token"]}
        done = run("audit", "verify", "--json", **named)
        assert done.code == Exit.OK, done.err
        (chain,) = done.json["chains"]
        assert (chain["chain"], chain["entries"]) == ("acme", 1)
        assert run("audit", "verify", "--head", chain["head"], **named).code == Exit.OK
        assert run("audit", "verify", "--head", f"acme:9:{HASH}", **named).code == Exit.FINDINGS
        wrong = run("audit", "verify", "--head", "acme", **named)
        assert wrong.code == Exit.USAGE and "is not a head" in words(wrong.err)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("--data", "nowhere"), Exit.NOT_FOUND, "there is no file"),
        (("--data", ".", "--server", "http://127.0.0.1:1"), Exit.USAGE, "work without a server"),
        (("--data", ".", "--head", "x"), Exit.USAGE, "is not a head"),
        (("--database", "mysql://x"), Exit.FAILURE, "cannot be used"),
    ],
    ids=["no file", "two places", "not a head", "not a database"],
)
def test_a_wrong_place_is_refused(arguments: tuple[str, ...], status: int, text: str, run: Run) -> None:
    done = run("audit", "verify", *arguments)
    assert done.code == status and text in words(done.err)


def test_tables_of_an_earlier_version_are_refused(run: Run, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "plugbay.db").close()
    done = run("audit", "verify", "--data", str(tmp_path))
    assert done.code == Exit.FAILURE and "from an earlier plugbay" in words(done.err)
