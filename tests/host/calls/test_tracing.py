"""Who brings no tracer loads nothing of OpenTelemetry, and who brings something else is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.host.calls.calls import Calls
from plugbay.host.calls.traced_calls import TracedCalls
from plugbay.host.calls.tracing import calls_with
from tests.support.plugins import write_plugin
from tests.support.spans import Spans

CALL = """
import asyncio, sys
from plugbay import Host

async def main():
    async with Host.load(sys.argv[1]{options}) as host:
        assert await host.call("t", {{"a": 1}}) == {{"a": 1}}

{before}
asyncio.run(main())
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "opentelemetry"))
"""
WITH_TRACER = ', tracer=__import__("opentelemetry.trace").trace.get_tracer("app")'


def child(folder: Path, options: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """A program of its own that calls a plugin once and says what of OpenTelemetry it has loaded."""
    words = [sys.executable, "-c", CALL.format(options=options, before=before), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_nothing_of_opentelemetry_is_loaded_unless_there_is_a_tracer(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)
    without, with_one = child(folder), child(folder, WITH_TRACER)
    assert (without.returncode, without.stdout) == (0, "\n"), without.stderr
    assert with_one.returncode == 0 and "opentelemetry.trace" in with_one.stdout.split(), with_one.stderr


def test_a_tracer_without_the_extra_is_told_how_to_install_it(tmp_path: Path) -> None:
    done = child(write_plugin(tmp_path), ", tracer=object()", 'sys.modules["opentelemetry"] = None')
    assert done.returncode == 1
    assert "PlugbayError: traces need the extra otel, for opentelemetry" in done.stderr
    assert "pip install 'plugbay[otel]'" in done.stderr


@pytest.mark.parametrize("wrong", [True, "app"])
def test_what_is_no_tracer_is_an_error_of_the_caller(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"tracer is what opentelemetry\.trace\.get_tracer\(\.\.\.\) gives, not "):
        Host([], tracer=wrong)


def test_only_a_tracer_makes_traced_calls() -> None:
    assert calls_with(None) is Calls
    assert type(Host([]).calls) is Calls
    assert type(Host([], tracer=Spans().tracer).calls) is TracedCalls
