"""Several trials at a time, and once more alone when one of them failed in company."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from plugbay.conformance import rounds
from plugbay.conformance.report import AxisResult, Status
from plugbay.conformance.rounds import AT_ONCE, Rounds
from plugbay.conformance.scenario import Scenario
from plugbay.conformance.steps import ExpectNoOrphans, ExpectRunning
from plugbay.conformance.trial import Verdict
from tests.support.loops import Run
from tests.support.patience import until

PASSED, FAILED, SKIPPED = Verdict(Status.PASSED), Verdict(Status.FAILED, "broken"), Verdict(Status.SKIPPED, "not here")


def scenario(id: str, *, after: tuple[str, ...] = (), teaches: bool = False, orphans: bool = False) -> Scenario:
    steps = (ExpectNoOrphans(expect_no_orphans={"within": 1.0}),) if orphans else ()
    return Scenario(id, id, "rule", "section", steps, after, learn={"tool": "result.tools"} if teaches else {})


class Trials:
    """Attempts that take a turn of the loop or more; `verdict` says how one ends, by its id and its company."""

    def __init__(self, verdict: Callable[[str, int], Verdict] = lambda id, company: PASSED) -> None:
        self._verdict = verdict
        self.running: list[str] = []
        self.began: list[str] = []
        self.most = 0
        self.told: list[tuple[str, Status]] = []
        self.gate: asyncio.Event | None = None

    async def attempt(self, scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        assert all(earlier[id].id == id for id in scenario.after)
        self.began.append(scenario.id)
        self.running.append(scenario.id)
        self.most = max(self.most, len(self.running))
        await (asyncio.sleep(0) if self.gate is None else self.gate.wait())
        verdict = self._verdict(scenario.id, len(self.running) - 1)
        self.running.remove(scenario.id)
        return verdict

    async def run(self, *scenarios: Scenario) -> list[str]:
        results = await Rounds(scenarios, self.attempt, lambda axis: self.told.append((axis.id, axis.status))).run()
        assert [result.id for result in results] == [scenario.id for scenario in scenarios]
        assert self.told == [(result.id, result.status) for result in results]
        return [str(result.status) for result in results]


def test_several_are_tried_at_a_time_and_no_more_than_so_many(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        assert set(await trials.run(*(scenario(f"s{n}") for n in range(3 * AT_ONCE)))) == {"passed"}
        assert trials.most == AT_ONCE

    run(main)


def test_what_comes_after_something_waits_for_it_and_for_what_teaches(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        trials.gate = asyncio.Event()
        all_of_them = (scenario("a", teaches=True), scenario("b"), scenario("c", after=("b",)), scenario("d"))
        task = asyncio.ensure_future(trials.run(*all_of_them))
        await until(lambda: trials.began == ["a"])
        trials.gate.set()
        await task
        assert (trials.began[0], trials.began.index("c") > trials.began.index("b")) == ("a", True)

    run(main)


def test_what_watches_longest_begins_first_but_not_before_what_it_comes_after(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        long, longer = (
            replace(scenario(id, after=("a",)), steps=(ExpectRunning(expect_running=seconds),))
            for id, seconds in (("long", 1.0), ("longer", 2.0))
        )
        await trials.run(scenario("a"), *(scenario(f"s{n}", after=("a",)) for n in range(AT_ONCE)), long, longer)
        assert trials.began[:3] == ["a", "longer", "long"]

    run(main)


def test_a_result_is_told_as_soon_as_it_and_all_before_it_passed(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        gate = asyncio.Event()

        async def attempt(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
            if scenario.id == "b":
                await gate.wait()
            return PASSED

        every = [scenario("a"), scenario("b"), scenario("c")]
        task = asyncio.ensure_future(
            Rounds(every, attempt, lambda axis: trials.told.append((axis.id, axis.status))).run()
        )
        await until(lambda: trials.told == [("a", Status.PASSED)])
        gate.set()
        assert len(await task) == 3
        assert [id for id, _ in trials.told] == ["a", "b", "c"]

    run(main)


def test_what_fails_in_company_is_tried_again_alone_and_only_that_counts(run: Run) -> None:
    def dislikes_company(id: str, company: int) -> Verdict:
        if id == "shy" and company:
            return FAILED
        return SKIPPED if id == "late" and company else PASSED

    async def main() -> None:
        trials = Trials(dislikes_company)
        every = [scenario(id) for id in ("shy", "b", "late", "bad")]
        assert await trials.run(*every) == ["passed"] * 4
        assert sorted(trials.began) == ["b", "bad", "late", "late", "shy", "shy"]

    run(main)


def test_what_failed_alone_is_certain_and_what_was_skipped_stays_when_nothing_failed(run: Run) -> None:
    async def main() -> None:
        alone = Trials(lambda id, company: FAILED)
        assert await alone.run(scenario("a"), scenario("b", after=("a",))) == ["failed", "failed"]
        assert alone.began == ["a", "b"]
        skips = Trials(lambda id, company: SKIPPED)
        assert await skips.run(scenario("a"), scenario("b")) == ["skipped", "skipped"]
        assert skips.began == ["a", "b"]

    run(main)


def test_a_failure_that_stays_one_is_told_once(run: Run) -> None:
    async def main() -> None:
        trials = Trials(lambda id, company: FAILED if id == "b" else PASSED)
        assert await trials.run(scenario("a"), scenario("b"), scenario("c")) == ["passed", "failed", "passed"]
        assert trials.began.count("b") == 2

    run(main)


def test_whoever_looks_for_orphans_has_no_company(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "AT_ONCE", 8)
    company: dict[str, int] = {}

    def verdict(id: str, others: int) -> Verdict:
        company[id] = others
        return PASSED

    async def main() -> None:
        every = [scenario("a"), scenario("orphans", orphans=True), scenario("c"), scenario("d", after=("orphans",))]
        assert await Trials(verdict).run(*every) == ["passed"] * 4
        assert company == {"a": 1, "c": 0, "orphans": 0, "d": 0}

    run(main)


def test_a_trial_that_cannot_be_made_is_an_error_of_the_run(run: Run) -> None:
    async def broken(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        raise LookupError(scenario.id)

    async def main() -> None:
        with pytest.raises(LookupError, match="a"):
            await Rounds([scenario("a"), scenario("b", after=("a",))], broken, None).run()

    run(main)
