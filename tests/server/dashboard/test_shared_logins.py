"""Links and sessions of the dashboard at several gateways; `tests/e2e/test_gateways.py` has the pages."""

from __future__ import annotations

from plugbay.server.dashboard.authentication import Notice, Sessions
from plugbay.server.dashboard.shared_logins import SharedLink, SharedLogins
from plugbay.server.domain.clock import SystemClock
from plugbay.server.domain.secrets import Keyring, KeySource
from plugbay.store.database import Database
from tests.support.loops import run_on

run = run_on("uvloop")


def logins(database: Database, key: bytes = b"1") -> SharedLogins:
    return SharedLogins(database, Keyring([key * 32], KeySource("a file")), SystemClock())


def test_a_link_of_one_gateway_works_once_at_any(sqlite_url: str) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        one, other = (Sessions(SystemClock(), shared=logins(database)) for _ in range(2))
        code = one.create_code("token")
        await one.share_code(code, "token")
        assert one.redeem(code) is None, "it is in the database alone"
        await other.fetch_code(code)
        assert other.redeem(code) == "token"
        for each in (one, other):
            await each.fetch_code(code)
            assert each.redeem(code) is None
        await database.close()

    run(main)


def test_a_session_its_notice_and_its_end_are_the_same_at_all_gateways(sqlite_url: str) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        one, other = (Sessions(SystemClock(), shared=logins(database)) for _ in range(2))
        cookie, session = one.begin("token")
        await one.save()
        session.notice = Notice("good", "done", "a hint")
        session.show_later("key_1", "secret")
        await one.keep(cookie, session)
        await other.fetch(cookie)
        there = other.find(cookie)
        assert there is not None and (there.token, there.form_key) == (session.token, session.form_key)
        assert there.take_notice() == Notice("good", "done", "a hint")
        assert there.unshown.pop("key_1") == "secret"
        await other.keep(cookie, there)
        await one.fetch(cookie)
        assert one.find(cookie) is session and session.notice is None and not session.unshown
        other.end(cookie)
        await other.save()
        await one.fetch(cookie)
        assert one.find(cookie) is None
        await other.keep(cookie, there)
        await one.fetch(cookie)
        assert one.find(cookie) is None, "what has ended does not come back"
        await database.close()

    run(main)


def test_what_another_key_sealed_is_no_login(sqlite_url: str) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        ends = SystemClock().now() + 60
        await logins(database).put(b"\1" * 32, SharedLink("token"), ends)
        assert await logins(database, b"2").find(b"\1" * 32, SharedLink) is None
        assert await logins(database).find(b"\1" * 32, SharedLink) is not None
        await database.close()

    run(main)
