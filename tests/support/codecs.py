"""The two JSON codecs that a machine may be given, and a fixture that is each of them.

The tests of `wire` hold the two against each other; so a machine's tests with the second codec belong to
`make test-all`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.support.tiers import first_alone

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

CODECS: dict[str, Callable[[], Codec]] = {"msgspec": MsgspecCodec, "stdlib": stdlib_codec}


@pytest.fixture(params=first_alone(CODECS))
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]()
