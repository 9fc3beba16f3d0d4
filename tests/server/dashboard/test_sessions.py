"""Who is logged in: codes are good once and soon, sessions for a day, and there are only so many of both."""

from __future__ import annotations

import pytest

from plugbay.server.dashboard.sessions import (
    CODE_SECONDS,
    MAX_CODES,
    MAX_SESSIONS,
    SESSION_SECONDS,
    TRIES_A_SECOND,
    TRIES_AT_ONCE,
    Notice,
    Sessions,
)
from plugbay.server.domain.errors import GatewayError
from tests.support.clocks import TurnedClock


def test_a_code_stands_for_its_token_once() -> None:
    sessions = Sessions(TurnedClock())
    code, other = sessions.invite("token"), sessions.invite("another")
    assert len(code) >= 22 and code != other
    assert sessions.redeem(code) == "token"
    assert sessions.redeem(code) is None
    assert sessions.redeem("x" + other[1:]) is None
    assert sessions.redeem("\ud800") is None
    assert sessions.redeem(other) == "another"


def test_a_code_is_of_no_use_after_ten_minutes() -> None:
    clock = TurnedClock()
    sessions = Sessions(clock)
    early, late = sessions.invite("token"), sessions.invite("token")
    clock.turn(CODE_SECONDS - 1)
    assert sessions.redeem(early) == "token"
    clock.turn(1)
    assert sessions.redeem(late) is None


def test_only_so_many_codes_wait_and_the_oldest_gives_way() -> None:
    sessions = Sessions(TurnedClock())
    codes = [sessions.invite(str(number)) for number in range(MAX_CODES + 1)]
    assert sessions.redeem(codes[0]) is None
    assert [sessions.redeem(code) for code in codes[1:]] == [str(number) for number in range(1, MAX_CODES + 1)]


def test_trying_is_bounded_and_possible_again_later() -> None:
    clock = TurnedClock()
    sessions = Sessions(clock)
    for _ in range(TRIES_AT_ONCE):
        sessions.tried()
    with pytest.raises(GatewayError) as refused:
        sessions.tried()
    assert refused.value.status == 429 and refused.value.retry_after
    clock.turn(1 / TRIES_A_SECOND)
    sessions.tried()


def test_a_session_is_found_by_its_cookie_until_its_time_is_over() -> None:
    clock = TurnedClock()
    sessions = Sessions(clock)
    cookie, session = sessions.begin("token")
    assert sessions.find(cookie) is session and sessions.find(cookie + "x") is None and sessions.find("") is None
    clock.turn(SESSION_SECONDS - 1)
    assert sessions.find(cookie) is session, "being used makes it no longer"
    clock.turn(1)
    assert sessions.find(cookie) is None


def test_a_session_that_was_ended_is_gone_and_others_are_not() -> None:
    sessions = Sessions(TurnedClock())
    (one, _), (other, session) = sessions.begin("token"), sessions.begin("token")
    sessions.end(one)
    sessions.end(one)
    assert sessions.find(one) is None and sessions.find(other) is session


def test_only_so_many_sessions_are_open_and_the_oldest_gives_way() -> None:
    sessions = Sessions(TurnedClock())
    cookies = [sessions.begin("token")[0] for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(cookies[0]) is None
    assert all(sessions.find(cookie) for cookie in cookies[1:])


def test_every_secret_is_another_and_none_is_shown() -> None:
    sessions = Sessions(TurnedClock())
    (cookie, one), (_, other) = sessions.begin("pb_sk_hunter2"), sessions.begin("pb_sk_hunter2")
    assert len({cookie, one.form_key, other.form_key}) == 3
    assert "hunter2" not in repr(one) and one.form_key not in repr(one)


def test_a_notice_is_told_once() -> None:
    _, session = Sessions(TurnedClock()).begin("token")
    session.notice = Notice("good", "done")
    assert session.take_notice() == Notice("good", "done")
    assert session.take_notice() is None
