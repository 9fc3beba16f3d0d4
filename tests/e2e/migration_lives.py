"""Starts that are killed in the middle of a migration.

Reads `before N URL` or `after N URL` on stdin and becomes a process that opens and migrates the database, and kills
itself with SIGKILL before or after its N-th statement or commit (0: never); prints how it ended, -9 or 0, and the
number of statements. Lives are forked from one process, because starting Python each time would be most of the work.

Run as `python -m tests.e2e.migration_lives`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from plugbay.store import tables
from plugbay.store.database import Database
from plugbay.store.sqlite import Connection
from tests.support.patience import PATIENCE

assert tables.ORGS is not None  # imported before the fork


class Doom:
    """Counts statements and commits, and kills the process at one of them."""

    def __init__(self, when: str, kill_at: int) -> None:
        self.done = 0
        self._kill = {"before": 0, "after": 0, when: kill_at}
        event.listen(Engine, "before_cursor_execute", self.begin)
        event.listen(Engine, "after_cursor_execute", self.end)
        event.listen(Engine, "commit", self.begin)  # PostgreSQL commits after this
        commit = Connection.commit

        async def commit_counted(connection: Connection) -> None:
            self.begin()
            await commit(connection)
            self.end()

        Connection.commit = commit_counted  # type: ignore[method-assign, assignment]

    def begin(self, *_: Any) -> None:
        self.done += 1
        if self.done == self._kill["before"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self, *_: Any) -> None:
        if self.done == self._kill["after"]:
            os.kill(os.getpid(), signal.SIGKILL)


async def live(url: str) -> None:
    database = await Database.open(url)
    await database.close()


def main() -> None:
    for line in sys.stdin:
        when, number, url = line.split()
        output, counted = os.pipe()
        child = os.fork()
        if child == 0:
            doom = Doom(when, int(number))
            asyncio.run(asyncio.wait_for(live(url), PATIENCE))
            os.write(counted, str(doom.done).encode())
            os._exit(0)
        os.close(counted)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), os.read(output, 32).decode() or "-", flush=True)
        os.close(output)


if __name__ == "__main__":
    main()
