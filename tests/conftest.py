"""Fixtures every test may use."""

from __future__ import annotations

import gc
import os
import signal
import sys

from hypothesis import HealthCheck, settings, strategies

from tests.support.loops import run

__all__ = ["run"]

pytest_plugins = ["tests.support.jobs"]

# Started in the background by a shell, we would ignore SIGINT, and so would every process a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling everything takes each worker 20 s, and each program that a test starts 2 s. So it is done once, even for
# those who asked for no bytecode, as images of containers do; git ignores it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Images of containers set this one as well. Programs of ordinary users buffer their output, and so do those of tests.
os.environ.pop("PYTHONUNBUFFERED", None)

# On a machine that others keep busy, a start takes many seconds: more than the two that one contract gives it.
os.environ.setdefault("PLUGBAY_TIME_FACTOR", "20")

# How long an example takes says how busy the machine is, and so does how long it takes to think of one.
# Whether a mutant survives must not depend on chance.
for profile, examples in {"short": 10, "long": 100, "prove": 1000, "mutation": 10}.items():
    settings.register_profile(
        profile,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=examples,
        derandomize=profile == "mutation",
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


# What is loaded and collected stays: the collector of cycles would look through it in vain.
gc.disable()


def pytest_collection_finish() -> None:
    """What 25,000 tests were made of stays: not to look through it again and again saves a tenth of the time.

    The table of all characters is made here, once: it would take each process 2.5 s.
    """
    strategies.text().validate()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20)
    gc.enable()
