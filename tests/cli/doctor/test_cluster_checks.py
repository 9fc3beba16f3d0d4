"""`plugbay doctor` tries the NATS server, the permissions, the registry and the database of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.doctor import cluster_checks
from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check
from plugbay.cli.doctor.cluster_checks import check_cluster, wanted_permissions
from plugbay.cluster.subjects import permissions
from plugbay.host.config.config import parse
from plugbay.store.database import Database
from tests.support.databases import database, sqlite_database
from tests.support.nats_server import nats_server
from tests.support.nodes import PASSWORD, Cell, cell
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with cell(tmp_path_factory.mktemp("cell")) as running:
        yield running


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELL_PASSWORD", PASSWORD)
    monkeypatch.delenv("PLUGBAY_NODE_NAME", raising=False)


def found(url: str, user: str, more: str = "", database: str | None = None) -> dict[str, Check]:
    login = f'user = "{user}"\npassword_env = "CELL_PASSWORD"\n' if user else ""
    config = parse(f'[cluster]\nnats = ["{url}"]\n{login}{more}')
    return {check.id: check for check in check_cluster(config, database)}


@requirement("host:nodes-doctor")
@pytest.mark.parametrize(("user", "more"), [("gateway", ""), ("n1", '[node]\nname = "n1"\n')])
def test_the_permissions_of_the_documentation_are_neither_too_few_nor_too_many(
    made: Cell, user: str, more: str
) -> None:
    checks = found(made.nats.url, user, f'registry = "oci://{made.registry}/plugbay"\n{more}')
    assert checks["cluster_permissions"].status == OK, checks["cluster_permissions"]
    assert checks["cluster_nats"].detail.startswith(made.nats.url)
    assert checks["cluster_registry"].status == OK, checks["cluster_registry"]
    assert ("cluster_database" in checks) is (user == "gateway"), "a node has no database"


@requirement("host:nodes-doctor")
def test_a_user_of_another_role_or_node_lacks_permissions(made: Cell) -> None:
    as_node = found(made.nats.url, "gateway", '[node]\nname = "n1"\n')["cluster_permissions"]
    assert (
        as_node.status == ERROR and "publish pb1.main.beat.n1" in as_node.detail and "pb1.main.beat.n1" in as_node.fix
    )
    as_gateway = found(made.nats.url, "n1")["cluster_permissions"]
    assert as_gateway.status == ERROR and "[node]" in as_gateway.detail
    other = found(made.nats.url, "n1", '[node]\nname = "n2"\n')["cluster_permissions"]
    assert other.status == ERROR and "subscribe pb1.main.node.n2.*" in other.detail


@requirement("host:nodes-doctor")
def test_a_user_that_may_do_everything_is_a_warning(tmp_path: Path) -> None:
    with nats_server(tmp_path / "nats") as nats:
        gateway = found(nats.url, "")["cluster_permissions"]
        node = found(nats.url, "", '[node]\nname = "n1"\n')["cluster_permissions"]
    for check in (gateway, node):
        assert check.status == WARNING and "subscribe >" in check.detail, check
    assert "publish pb1.main.beat.plugbay-doctor" in gateway.detail
    assert "subscribe pb1.main.beat.*" in node.detail and "publish pb1.main.roll" in node.detail


def test_what_a_role_must_not_do_is_what_the_other_role_and_other_nodes_may() -> None:
    for node in (None, "n1"):
        wanted = wanted_permissions("main", node)
        needed = {(each.action, each.subject) for each in wanted if each.needed}
        forbidden = {(each.action, each.subject) for each in wanted if not each.needed}
        assert not needed & forbidden
        plain = {each for each in permissions("main", node)["subscribe"] if " " not in each}
        assert plain <= {subject for action, subject in needed if action == "subscribe"}
        assert ("subscribe", "_INBOX.>") in forbidden


def test_a_server_that_is_not_there_and_missing_credentials_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = found("nats://127.0.0.1:1", "gateway")["cluster_nats"]
    assert gone.status == ERROR and "127.0.0.1:1" in gone.detail
    monkeypatch.delenv("CELL_PASSWORD")
    missing = found("nats://127.0.0.1:1", "gateway")["cluster_nats"]
    assert missing.status == ERROR and "CELL_PASSWORD" in missing.detail


@dataclass
class Version:
    major: int
    minor: int
    patch: int


@pytest.mark.parametrize(
    ("version", "status"),
    [(Version(2, 9, 15), WARNING), (Version(2, 9, 16), OK), (Version(2, 10, 0), OK), (Version(3, 0, 0), OK)],
)
def test_an_old_nats_server_is_a_warning(version: Version, status: str) -> None:
    class Connected:
        connected_server_version = version

    client: Any = Connected()
    assert cluster_checks._nats_check("nats://127.0.0.1:4222", client).status == status


def test_a_registry_that_is_not_there_is_an_error() -> None:
    config = parse('[cluster]\nregistry = "oci://127.0.0.1:1/plugbay"\n')
    (check, _) = check_cluster(config, None)
    assert (check.id, check.status) == ("cluster_registry", ERROR)


def test_tables_of_another_version_are_an_error(tmp_path: Path) -> None:
    url = sqlite_database(tmp_path)
    config = parse("[cluster]\n")
    checks = {check.id: check.status for check in check_cluster(config, url)}
    assert checks == {"cluster_clock": OK, "cluster_tables": OK}

    async def make_empty() -> str:
        empty = f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"
        await (await Database.open(empty, migrate=False)).close()
        return empty

    checks = {check.id: check.status for check in check_cluster(config, asyncio.run(make_empty()))}
    assert checks == {"cluster_clock": OK, "cluster_tables": ERROR}


@exhaustive
def test_the_database_of_gateways_is_asked(tmp_path: Path) -> None:
    with database("postgresql", tmp_path) as url:
        checks = {check.id: check.status for check in check_cluster(parse("[cluster]\n"), url)}
    assert checks == {"cluster_clock": OK, "cluster_tables": OK}
    (check,) = check_cluster(parse("[cluster]\n"), "postgresql://nobody@127.0.0.1:1/nothing")
    assert check.status == ERROR


@pytest.mark.parametrize(
    ("theirs", "status", "word"),
    [(100.5, OK, "agree"), (101.4, OK, "agree"), (103.0, WARNING, "behind"), (97.0, WARNING, "ahead of")],
)
def test_clocks_may_differ_by_a_second(theirs: float, status: str, word: str) -> None:
    check = cluster_checks._clock_check(100.0, theirs, 101.0)
    assert check.status == status and word in check.detail
