"""The share of a confined plugin in objects that the kernel counts for each user."""

from __future__ import annotations

import os

from plugbay.process.sandbox.user_limits import SHARE, UserLimits
from tests.process.helpers import open_fds
from tests.process.sandbox.drivers import report
from tests.support.requirements import requirement


@requirement("host:kernel-shares")
def test_without_root_a_confined_plugin_leaves_inotify_instances_for_the_host_and_an_unconfined_one_does_not() -> None:
    found = report("rootless", "shares")
    most = found["machine"]
    assert found["confined"] == {"taken": most // SHARE, "host": True}
    assert found["free"]["taken"] > most // SHARE and not found["free"]["host"]


def test_limits_that_cannot_be_set_are_explained_and_one_helper_serves_all_starts() -> None:
    before = open_fds()
    limits = UserLimits()
    assert "No such file" in limits.apply(1 << 30)
    helper = limits._helper
    assert "No such file" in limits.apply(1 << 30) and limits._helper is helper
    limits.close()
    limits.close()
    assert helper is not None and helper.returncode is not None and open_fds() == before


def test_a_helper_that_was_killed_is_replaced() -> None:
    limits = UserLimits()
    limits.apply(1 << 30)
    helper = limits._helper
    assert helper is not None
    helper.kill()
    os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)
    assert limits.apply(1 << 30) and limits._helper is None
    assert "No such file" in limits.apply(1 << 30)
    limits.close()
