"""Faults by name, for `fake_plugin`.

    fake_plugin({"lookup": faults.dies_mid_call})             when a tool is called
    fake_plugin({"lookup": 1}, fault=faults.never_greets)     when the plugin starts or stops

`child` implements them for every contract. Faults of the messages of one contract are in the conformance kit:
`bad_plugin("nexo/answer_both")`.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

CALL, START, END = "call", "start", "end"
"""When a fault happens."""


class Fault(msgspec.Struct, frozen=True):
    """A fault. Call one with a duration to set its seconds: `faults.slow(0.2)`."""

    name: str
    what: str
    moment: str = CALL
    seconds: float | None = None

    def __call__(self, seconds: float) -> Fault:
        if self.seconds is None:
            raise TypeError(f"faults.{self.name} takes no time")
        return replace(self, seconds=seconds)


slow = Fault("slow", "answers, but late", seconds=1.0)
never_answers = Fault("never_answers", "does its work and sends no answer")
dies_mid_call = Fault("dies_mid_call", "exits with 3 and a message on stderr instead of answering")
killed_mid_call = Fault("killed_mid_call", "is killed instead of answering, as by the kernel when memory runs out")
garbage_on_stdout = Fault("garbage_on_stdout", "prints a line of text where only messages belong, then answers")
not_json = Fault("not_json", "answers with something that is not JSON")
half_an_answer = Fault("half_an_answer", "exits in the middle of its answer")
huge_answer = Fault("huge_answer", "answers with 17 MiB, more than any contract allows")
wrong_id = Fault("wrong_id", "answers a request that was never made, and not the real one")
answers_twice = Fault("answers_twice", "gives the same answer twice")

never_greets = Fault("never_greets", "starts, and does not answer the greeting", START)
dies_at_start = Fault("dies_at_start", "exits with 3 and a message on stderr before the greeting", START)
slow_start = Fault("slow_start", "waits before it answers the greeting", START, seconds=1.0)
garbage_at_start = Fault("garbage_at_start", "prints a line of text before the greeting", START)

never_leaves = Fault("never_leaves", "keeps running when it is asked to exit", END)

ALL: dict[str, Fault] = {name: value for name, value in list(globals().items()) if isinstance(value, Fault)}
"""All faults by name."""
