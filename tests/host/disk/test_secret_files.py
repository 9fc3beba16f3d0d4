"""A secret may be readable for the group only where another user owns it, as for one that was mounted."""

from __future__ import annotations

import os

import pytest

from plugbay.host.disk.secret_files import others_can_read

OWN, OTHER = os.geteuid(), os.geteuid() + 1


@pytest.mark.parametrize(
    ("owner", "mode", "open_to_others"),
    [
        (OWN, 0o600, False),
        (OWN, 0o400, False),
        (OWN, 0o440, True),
        (OWN, 0o640, True),
        (OWN, 0o604, True),
        (OTHER, 0o440, False),
        (OTHER, 0o640, False),
        (OTHER, 0o660, True),
        (OTHER, 0o444, True),
    ],
)
def test_who_can_read_a_secret_is_judged_by_its_owner_and_mode(owner: int, mode: int, open_to_others: bool) -> None:
    found = os.stat_result((0o100000 | mode, 1, 1, 1, owner, 1, 1, 0, 0, 0))
    assert others_can_read(found) is open_to_others
