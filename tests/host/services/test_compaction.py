"""Who is asked about a compaction, what answers mean, and that it happens whatever plugins do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.services.compaction import (
    STRATEGIES,
    CompactionOutcome,
    CompactionPlan,
    CompactionRequest,
    apply_compactor,
    built_in,
    compact,
    plan_for,
)
from plugbay.host.services.hooks import MAX_INJECTION
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.spec import Export, PluginSpec
from tests.support.loops import Run, run_on
from tests.support.requirements import requirement

SYSTEM = {"role": "system", "content": "be kind"}


def said(*numbers: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": str(number)} for number in numbers]


REQUEST = CompactionRequest([SYSTEM, *said(1, 2, 3, 4)], "drop", "token_limit", keep=1)
ABOUT = {"strategy": "drop", "trigger": "token_limit"}


class Panel:
    """Plugins with one answer per hook; remembers whom it asked what."""

    def __init__(self, answers: Mapping[tuple[str, str], object]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []
        self.events: list[Mapping[str, Any]] = []

    async def ask(self, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
        self.asked.append((plugin_id, hook))
        self.events.append(event)
        answer = self.answers.get((plugin_id, hook))
        if isinstance(answer, BaseException):
            raise answer
        return answer


def compacted(
    run: Run,
    plan: CompactionPlan,
    answers: Mapping[tuple[str, str], object] | None = None,
    request: CompactionRequest = REQUEST,
) -> tuple[CompactionOutcome, Panel]:
    panel = Panel(answers or {})
    outcomes: list[CompactionOutcome] = []

    async def main() -> None:
        outcomes.append(await compact(plan, request, panel.ask))

    run(main)
    return outcomes[0], panel


FULL = CompactionPlan("primary", ("a", "b"), "c")


# Who is asked.


@requirement("kaged:host-compaction-order")
def test_observers_are_called_in_order_then_the_compactor_then_all_get_the_result(run: Run) -> None:
    outcome, panel = compacted(run, FULL)
    assert panel.asked == [
        ("a", "pre_compact"),
        ("b", "pre_compact"),
        ("c", "pre_compact"),
        ("a", "post_compact"),
        ("b", "post_compact"),
        ("c", "post_compact"),
    ]
    assert panel.events[0] == ABOUT
    assert panel.events[2] == {**ABOUT, "messages": list(REQUEST.messages), "keep": 1}
    after = {**ABOUT, "messages_being_compacted": said(1, 2, 3), "messages_remaining": [SYSTEM, *said(4)]}
    assert panel.events[3:] == [after] * 3
    assert (outcome.messages, outcome.removed) == ([SYSTEM, *said(4)], said(1, 2, 3))


def test_a_plugin_is_asked_only_about_the_hooks_it_wants(run: Run) -> None:
    wanted = {"a": frozenset({"post_compact"}), "b": frozenset[str](), "c": frozenset({"pre_compact"})}
    _, panel = compacted(run, CompactionPlan("primary", ("a", "b"), "c", wanted))
    assert panel.asked == [("c", "pre_compact"), ("a", "post_compact")]


def test_compaction_works_without_plugins(run: Run) -> None:
    outcome, panel = compacted(run, CompactionPlan("primary"))
    assert (panel.asked, outcome) == ([], CompactionOutcome([SYSTEM, *said(4)], said(1, 2, 3)))


@requirement("kaged:host-compaction-inject")
def test_injections_are_collected_in_the_order_of_asking(run: Run) -> None:
    outcome, _ = compacted(
        run,
        FULL,
        {
            ("a", "pre_compact"): {"inject": "a before"},
            ("b", "pre_compact"): {"inject": ""},
            ("c", "pre_compact"): {"inject": "c before"},
            ("b", "post_compact"): {"retain": [], "inject": "b after"},
            ("a", "post_compact"): {"inject": "a after"},
        },
    )
    assert outcome.injections == (("a", "a before"), ("c", "c before"), ("a", "a after"), ("b", "b after"))
    assert outcome.failures == ()


# What a compactor says.


@requirement("kaged:host-compactor")
def test_a_compactors_messages_replace_the_conversation(run: Run) -> None:
    summary = [SYSTEM, {"role": "system", "content": "they counted"}, *said(4)]
    outcome, panel = compacted(run, FULL, {("c", "pre_compact"): {"messages": summary}})
    assert (outcome.messages, outcome.compacted_by, outcome.built_in_because) == (summary, "c", None)
    assert outcome.removed == said(1, 2, 3)
    assert panel.events[-1]["messages_being_compacted"] == said(1, 2, 3)
    assert panel.events[-1]["messages_remaining"] == summary


@requirement("kaged:host-compactor")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "left the decision"),
        ({}, "left the decision"),
        (Failure(Code.TIMEOUT, "too slow"), "failed: too slow"),
        ({"messages": None}, "no messages"),
        ({"messages": "text"}, "no messages"),
        ({"messages": ["text"]}, "no messages"),
        ({"summary": "x"}, "no messages"),
        (["x"], "no messages"),
        ("x", "no messages"),
        ({"messages": []}, "no messages"),
        ({"messages": said(*range(6))}, "longer than the conversation"),
        ({"messages": [{"role": "user", "content": "x" * 1000}]}, "longer than the conversation"),
    ],
    ids=str,
)
def test_anything_else_leaves_it_to_the_built_in_strategy_and_says_why(answer: object, why: str) -> None:
    outcome = apply_compactor(REQUEST, "c", answer)
    assert (outcome.messages, outcome.removed) == ([SYSTEM, *said(4)], said(1, 2, 3))
    assert outcome.compacted_by is None
    assert outcome.built_in_because is not None
    assert why in outcome.built_in_because


def test_an_empty_conversation_may_stay_empty() -> None:
    assert apply_compactor(CompactionRequest([]), "c", {"messages": []}).compacted_by == "c"


def test_of_messages_that_are_alike_those_that_are_gone_are_counted() -> None:
    outcome = apply_compactor(CompactionRequest(said(1, 1, 2, 1)), "c", {"messages": said(1)})
    assert outcome.removed == said(1, 1, 2)


# Failures.


@requirement("kaged:host-compaction-fail-open")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Failure(Code.TIMEOUT, "slow"), Code.TIMEOUT),
        (CallFailed(Failure(Code.CRASHED, "gone")), Code.CRASHED),
        (RuntimeError("a bug"), Code.INTERNAL),
        ("nonsense", Code.MALFORMED_RESPONSE),
        (["nonsense"], Code.MALFORMED_RESPONSE),
        ({"inject": 5}, Code.MALFORMED_RESPONSE),
        ({"inject": "x" * (MAX_INJECTION + 1)}, Code.MALFORMED_RESPONSE),
    ],
    ids=str,
)
def test_a_plugin_that_fails_is_listed_and_nothing_stops(run: Run, answer: object, code: str) -> None:
    plugins, hooks = ("a", "b", "c"), ("pre_compact", "post_compact")
    outcome, panel = compacted(run, FULL, {(plugin, hook): answer for plugin in plugins for hook in hooks})
    assert len(panel.asked) == 6
    assert [(plugin, failure.code) for plugin, failure in outcome.failures] == [
        (plugin, code) for plugin in (*plugins, *plugins)
    ]
    assert (outcome.messages, outcome.injections) == ([SYSTEM, *said(4)], ())


def test_cancelling_a_compaction_cancels_it(run: Run) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def never(plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
            asked.set()
            return await asyncio.Event().wait()

        task = asyncio.create_task(compact(FULL, REQUEST, never))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


# The built-in strategies.


@requirement("kaged:host-compaction-strategies")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("messages", "keep", "kept", "gone"),
    [
        ([SYSTEM, *said(1, 2, 3)], 2, [SYSTEM, ..., *said(2, 3)], 1),
        ([*said(1), SYSTEM, *said(2, 3)], 1, [..., SYSTEM, *said(3)], 2),
        ([*said(1, 2)], 0, [...], 2),
        ([SYSTEM], 0, [SYSTEM], 0),
        ([*said(1, 2)], 5, said(1, 2), 0),
        ([], 5, [], 0),
    ],
)
def test_a_built_in_strategy_keeps_the_system_and_the_last_messages(
    strategy: str, messages: list[Any], keep: int, kept: list[Any], gone: int
) -> None:
    outcome = built_in(CompactionRequest(messages, strategy, keep=keep))
    were = "1 earlier message was" if gone == 1 else f"{gone} earlier messages were"
    note = {"role": "system", "content": f"[{were} removed from this conversation]"}
    notes = [] if strategy == "drop" else [note]
    expected = [message for entry in kept for message in (notes if entry is ... else [entry])]
    assert (outcome.messages, len(outcome.removed)) == (expected, gone)


@given(
    st.lists(st.sampled_from(["system", "user", "assistant", "tool"])),
    st.integers(0, 10),
    st.sampled_from(STRATEGIES),
)
def test_no_message_is_lost_and_none_appears_twice(roles: list[str], keep: int, strategy: str) -> None:
    messages: Sequence[dict[str, Any]] = [{"role": role, "content": str(n)} for n, role in enumerate(roles)]
    outcome = built_in(CompactionRequest(messages, strategy, keep=keep))
    kept = [message for message in outcome.messages if message in messages]
    assert sorted([*kept, *outcome.removed], key=lambda message: int(message["content"])) == messages
    assert all(message["role"] != "system" for message in outcome.removed)
    assert len(outcome.messages) - len(kept) == (1 if outcome.removed and strategy != "drop" else 0)


def test_an_unknown_strategy_and_a_negative_rest_are_our_own_bug() -> None:
    with pytest.raises(ValueError, match="not a strategy"):
        CompactionRequest([], "forget")
    with pytest.raises(ValueError, match="must not be negative"):
        CompactionRequest([], keep=-1)


# The plan.


def plugin(id: str, *roles: str, hooks: tuple[str, ...] = ("pre_compact", "post_compact")) -> PluginSpec:
    exports = tuple(Export("hook", hook) for hook in (*hooks, "on_session_start"))
    return PluginSpec(id, "1", "kaged", Path("/nowhere"), ("./run",), exports=exports, roles=roles)


BOTH = frozenset({"pre_compact", "post_compact"})


@requirement("kaged:host-compaction-plan")
def test_a_plan_holds_observers_in_order_and_the_compactor_apart() -> None:
    plugins = [
        plugin("b", "observer"),
        plugin("c", "observer", "compactor"),
        plugin("x"),
        plugin("a", "observer", hooks=()),
    ]
    plan = plan_for("primary", plugins)
    assert isinstance(plan, CompactionPlan)
    assert (plan.agent, plan.observers, plan.compactor) == ("primary", ("b", "a"), "c")
    assert (plan.hooks["b"], plan.hooks["a"]) == (BOTH, frozenset())


@requirement("kaged:host-one-compactor")
def test_an_agent_has_at_most_one_compactor_and_the_failure_names_both() -> None:
    failure = plan_for("primary", [plugin("c1", "compactor"), plugin("o", "observer"), plugin("c2", "compactor")])
    assert isinstance(failure, Failure)
    assert failure.code == Code.INVALID_INPUT
    assert failure.detail == {"agent": "primary", "compactors": ["c1", "c2"]}
    assert "c1, c2" in failure.message
    assert plan_for("primary", []) == CompactionPlan("primary")


def test_a_plan_from_plugins_is_followed() -> None:
    plan = plan_for("primary", [plugin("c", "compactor", hooks=("pre_compact",)), plugin("o", "observer")])
    assert isinstance(plan, CompactionPlan)
    _, panel = compacted(run_on("asyncio"), plan)
    assert panel.asked == [("o", "pre_compact"), ("c", "pre_compact"), ("o", "post_compact")]
