"""A cluster gets the next release under load, one gateway and one node after the other.

The next release is a copy of this one with what a release may add: a column, and fields and versions of announcements.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import plugbay
from tests.faults import faults
from tests.faults.checker import BEGUN, LOST, REFUSED, SUCCEEDED, Request
from tests.faults.test_matrix import Scenario, scenario
from tests.faults.world import Gateway, Node
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = {head!r}

def upgrade():
    for table in ("orgs", "plugin_invocations", "deliveries"):
        op.add_column(table, sa.Column("later", sa.String(64)))
"""


def next_release(folder: Path) -> Path:
    """A folder for PYTHONPATH."""
    code = folder / "plugbay"
    shutil.copytree(Path(plugbay.__file__).parent, code, ignore=shutil.ignore_patterns("__pycache__"))
    versions = code / "store" / "migrations" / "versions"
    head = max(versions.glob("[0-9]*.py")).name.partition("_")[0]
    (versions / "9999_later.py").write_text(MIGRATION.format(head=head))
    envelope = code / "cluster" / "envelope.py"
    text = envelope.read_text()
    for place, added in (("TAKES: Final = (VERSION,)", " + (2,)"), ("takes: Versions = TAKES", '; later: Word = "x"')):
        assert place in text
        text = text.replace(place, place + added)
    envelope.write_text(text)
    return folder


@exhaustive
@requirement("host:nodes-drain")
def test_each_gateway_and_node_is_upgraded_under_load_without_a_failed_call(tmp_path: Path) -> None:
    later = next_release(tmp_path / "later")
    with scenario(tmp_path / "world", nodes=3, lost=PATIENCE) as made:
        first, *_, last = made.world.gateways
        migrate = [sys.executable, "-m", "plugbay", "migrate", "--json", "--database", first.database_url]
        done = subprocess.run(migrate, env={**os.environ, "PYTHONPATH": str(later)}, capture_output=True, check=True)
        assert b'"9999"' in done.stdout
        faults.replace(made.world, last)  # by itself: the release before starts with these tables
        parties: list[Gateway | Node] = [*made.world.gateways, *made.world.nodes]
        for party in parties:
            party.source = later
            faults.replace(made.world, party)
            assert f"PYTHONPATH={later}" in Path(f"/proc/{party.pid}/environ").read_text()
        made.load.wait_served()
        made.load.stop()
        made.load.join()
        told = made.load.history.requests
        odd = [each for each in told if each.status not in (SUCCEEDED, BEGUN, REFUSED)]
        assert [each for each in odd if each.failure.get("code") != "unavailable" and not is_unheard(made, each)] == []


def is_unheard(made: Scenario, request: Request) -> bool:
    """Whether it met the end of an idle connection, as with any HTTP server that stops: nothing was begun for it."""
    runs = made.world.postgres.writable.query("SELECT metadata::text AS text FROM runs")
    begun = made.asked(request.execution) or any(f'"{request.execution}"' in run["text"] for run in runs)
    return request.status == LOST and request.code in ("ReadError", "RemoteProtocolError") and not begun
