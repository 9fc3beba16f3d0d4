"""The singleton of a world: an installed plugin of which one copy runs, and what it and the database witness of it.

The plugin acts by itself as long as it lives: it writes each act to a file, and each eighth time to its storage. Its
tool acts too. A trigger in the database keeps each write that was committed, with the lease of that moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugbay.packages import keys
from plugbay.packages.archive import pack, signature_path
from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustedKey, TrustStore
from tests.faults.checker import Accepted, Act
from tests.support.kaged import write_kaged_plugin
from tests.support.packaged import SIGNED_AT, Publisher

NAME, PUBLISHER = "solo", "acme"

EXPORT = f"{NAME}/act"

GRANTS = ["kaged:storage:read", "kaged:storage:write"]

SETTINGS = f'\n[plugins."{NAME}"]\ngrants = {json.dumps(GRANTS)}\n'
"""For the `plugbay.toml` of each gateway."""

BODY = """
PROCESS = f"{{os.getpid()}}.{{os.urandom(3).hex()}}"
lock = threading.Lock()
send_alone = send
initialize_alone = initialize
is_greeted = False

def send(**message):
    with lock:
        send_alone(**message)

def note(kind, *facts):
    place = os.open({ledger!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(place, json.dumps([kind, __file__, PROCESS, *facts]).encode() + b"\\n")
    os.close(place)

def act():
    begun = time.monotonic()
    time.sleep(0.02 + os.urandom(1)[0] / 255 * 0.03)
    note("act", begun, time.monotonic())

def work():
    count = 0
    while True:
        act()
        count += 1
        if is_greeted and count % 8 == 0:
            value = {{"file": __file__, "process": PROCESS, "id": f"{{PROCESS}}-{{count}}"}}
            try:
                request(count, "kaged.storage.set", key="last", value=value)
            except OSError:
                pass  # the host is gone: it acts on, if it is not killed

def initialize(m):
    global is_greeted
    initialize_alone(m)
    is_greeted = True

def tool(name, params, m):
    act()
    reply(m, {{"process": PROCESS}})

def answered(m):
    note("refused" if "error" in m else "accepted", f"{{PROCESS}}-{{m['id']}}")

threading.Thread(target=work, daemon=True).start()
"""

WITNESS = (
    "CREATE TABLE witnessed_writes (number bigserial PRIMARY KEY, epoch bigint, node text, value text)",
    f"""
    CREATE FUNCTION witness_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.witnessed_writes (epoch, node, value)
        SELECT lease.epoch, lease.facts::json ->> 'node', convert_from(NEW.value, 'UTF8')
        FROM (SELECT 1) AS always LEFT JOIN public.leases AS lease ON lease.name = 'plugin/{NAME}';
        RETURN NULL;
    END $$
    """,
    f"""
    CREATE TRIGGER witness_write AFTER INSERT OR UPDATE ON plugin_storage
    FOR EACH ROW WHEN (NEW.plugin_id = '{NAME}') EXECUTE FUNCTION witness_write()
    """,
)
"""Statements for the database. Writes of one plugin wait for each other, so their numbers are in the order of their
commits; a fence keeps the row of its lease unchanged until the commit, so the lease is the one that was checked."""


@dataclass(slots=True)
class Noted:
    """What copies of the singleton have written down."""

    acts: list[Act] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    """Ids of the writes that a copy was told to be accepted."""
    refused: int = 0


class Singleton:
    """The plugin, packed and signed."""

    def __init__(self, folder: Path, publisher: Publisher, trust: Path) -> None:
        self.ledger = folder / "acts"
        self._trust = TrustStore(trust)
        place = folder / NAME
        place.mkdir()
        body = BODY.format(ledger=str(self.ledger))
        packed = pack(write_kaged_plugin(place, NAME, body, tools=["act"], capabilities=GRANTS), place)
        signature_path(packed.path).write_bytes(publisher.sign(packed))
        self._archive = packed.path
        known = TrustedKey(keys.public_of(publisher.key), PUBLISHER, packages=(NAME,))
        self._trust.add(known, "keep")

    def install(self, data: Path) -> None:
        """As `plugbay install` does, for the gateway whose installed plugins are in this folder."""
        store = Store(data)
        store.create()
        installer = Installer(store, self._trust, lambda: SIGNED_AT)
        with installer.candidate(self._archive) as candidate:
            installer.install(candidate)

    def noted(self, node_of: Callable[[str], str]) -> Noted:
        """The ledger; `node_of` has the name of the node by the path of a file of the plugin."""
        noted = Noted()
        for line in self.ledger.read_text().splitlines() if self.ledger.exists() else ():
            kind, file, process, *facts = json.loads(line)
            if kind == "act":
                noted.acts.append(Act(NAME, f"{node_of(file)}/{process}", *facts))
            elif kind == "accepted":
                noted.accepted.add(*facts)
            else:
                noted.refused += 1
        return noted


def written(rows: Iterable[dict[str, Any]], node_of: Callable[[str], str]) -> list[Accepted]:
    """The writes that were committed, from the rows of `witnessed_writes` in the order of their numbers."""
    found = []
    for row in rows:
        value = json.loads(row["value"])
        holder = f"{node_of(value['file'])}/{value['process']}"
        found.append(Accepted(NAME, row["epoch"] or 0, holder, row["node"] or "", value["id"]))
    return found
