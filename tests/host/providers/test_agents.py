"""Agents and the plugins attached to them: who is asked, in which order. Real children, both loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import Code, ConfigInvalid, Host
from plugbay.host.records import MemoryCallLog
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

HOOK = 'def hook_on_hook(m):\n    reply(m, {"override": {"order": m["params"]["event"].get("order", "") + ID}})\n'


def hosts(tmp_path: Path, text: str) -> Path:
    for plugin_id in "abc":
        write_nexo_plugin(tmp_path / "plugins", plugin_id, HOOK, extends={"hooks": ["before_message"]})
    config = tmp_path / "plugbay.toml"
    config.write_text(text)
    return config


def test_an_agent_has_its_plugins_in_its_own_order_and_no_others(run: Run, tmp_path: Path) -> None:
    config = hosts(tmp_path, '[agents.primary]\nplugins = ["c", "a"]\n[agents."primary.subagents.x"]\nplugins = []\n')

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            assert (await host.fire("before_message", {})).event == {"order": "ca"}
            assert (await host.fire("before_message", {}, agent="primary.subagents.x")).event == {}
            assert (await host.fire("before_message", {}, agent="somebody")).event == {"order": "abc"}

    run(main)


def test_without_a_word_about_agents_every_plugin_is_asked(run: Run, tmp_path: Path) -> None:
    config = hosts(tmp_path, "")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            assert (await host.fire("before_message", {})).event == {"order": "abc"}

    run(main)


def test_a_hook_that_events_are_delivered_to_has_no_say_in_an_agents_turn(run: Run, tmp_path: Path) -> None:
    config = hosts(tmp_path, "")
    write_vai_plugin(tmp_path / "plugins", exports=[export("before_message", "hook")])
    log = MemoryCallLog()

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config, grant_all=True, call_log=log) as host:
            assert "acme/p/before_message" in host.exports()
            assert (await host.fire("before_message", {})).event == {"order": "abc"}
            assert {record.plugin for record in log.records} == {"a", "b", "c"}

    run(main)


def test_a_conversation_is_compacted_by_the_agents_own_strategy(run: Run, tmp_path: Path) -> None:
    config = hosts(tmp_path, "[agents.primary]\nplugins = []\nkeep = 1\n")
    messages = [{"role": "user", "content": str(number)} for number in range(5)]

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            outcome = await host.compact(messages, trigger="token_limit")
            assert list(outcome.messages) == messages[-1:]
            assert list(outcome.removed) == messages[:-1]

    run(main)


def test_a_plugin_that_is_not_here_is_noted_and_left_out(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = hosts(tmp_path, '[agents.primary]\nplugins = ["nobody", "a"]\n')

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            assert (await host.fire("before_message", {})).event == {"order": "a"}

    run(main)
    assert "the agent primary uses nobody" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[agents.primary]\nplugins = ["a", "a"]\n', "a is attached twice"),
        ('[agents.primary]\nstrategy = "forget"\n', "agents.primary.strategy"),
    ],
)
def test_an_agent_that_cannot_be_is_a_config_error(tmp_path: Path, text: str, words: str) -> None:
    config = hosts(tmp_path, text)
    with pytest.raises(ConfigInvalid, match=words):
        Host.load(tmp_path / "plugins", config=config)


# Hooks and compaction of an agent's session.

OBSERVES = """
def hook(name, params, m):
    reply(m, {"inject": f"{NAME} on {name} of {params['_context']['agent_path']}"})
"""
COMPACTS = """
def hook(name, params, m):
    if name == "pre_compact":
        reply(m, ANSWER(params))
    else:
        reply(m, {"retain": []})
"""
MESSAGES = [{"role": "user", "content": str(number)} for number in range(6)]


@requirement("kaged:hooks-injected")
def test_injections_are_collected_in_the_order_of_the_agent(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_kaged_plugin(tmp_path / "plugins", name, OBSERVES, hooks=["on_session_start"])
    write_kaged_plugin(tmp_path / "plugins", "c", "def hook(*_):\n    os._exit(1)\n", hooks=["on_session_start"])
    config = tmp_path / "plugbay.toml"
    config.write_text('[agents.primary]\nplugins = ["b", "c", "a"]\n')

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            outcome = await host.fire("on_session_start", {}, context={"session_id": "s1"})
            assert outcome.injections == (
                ("b", "b on on_session_start of primary"),
                ("a", "a on on_session_start of primary"),
            )
            assert [plugin for plugin, _ in outcome.skipped] == ["c"]

    run(main)


@requirement("kaged:compaction-pipeline")
@pytest.mark.parametrize(
    ("answer", "left", "by"),
    [
        ("lambda p: {'messages': p['messages'][-1:]}", 1, "shrink"),
        ("lambda p: None", 2, None),
        ("lambda p: {}", 2, None),
        ("lambda p: {'messages': 'no list'}", 2, None),
        ("lambda p: os._exit(1)", 2, None),
    ],
    ids=["replaces", "declines", "says nothing", "answers nonsense", "dies"],
)
def test_the_compactor_decides_or_the_built_in_strategy_does(
    run: Run, tmp_path: Path, answer: str, left: int, by: str | None
) -> None:
    hooks = ["pre_compact", "post_compact"]
    write_kaged_plugin(tmp_path / "plugins", "watch", OBSERVES, hooks=hooks)
    body = f"ANSWER = {answer}\n" + COMPACTS
    write_kaged_plugin(tmp_path / "plugins", "shrink", body, hooks=hooks, roles=["compactor"])
    config = tmp_path / "plugbay.toml"
    config.write_text('[agents.primary]\nplugins = ["watch", "shrink"]\nkeep = 2\n')

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            outcome = await host.compact(MESSAGES, trigger="token_limit")
            assert (len(outcome.messages), outcome.compacted_by) == (left, by)
            assert (outcome.built_in_because is None) == (by is not None)
            heard = [("watch", f"watch on {hook} of primary") for hook in hooks]
            assert list(outcome.injections) == heard

    run(main)


@requirement("kaged:compaction-one-compactor")
def test_two_compactors_on_one_agent_are_a_config_error(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_kaged_plugin(tmp_path / "plugins", name, hooks=["pre_compact"], roles=["compactor"])
    config = tmp_path / "plugbay.toml"
    config.write_text('[agents.primary]\nplugins = ["one", "two"]\n')
    with pytest.raises(ConfigInvalid, match="more than one compactor: one, two"):
        Host.load(tmp_path / "plugins", config=config)


@requirement("kaged:hooks-timeout")
def test_a_hook_that_takes_too_long_is_passed_over_and_the_plugin_lives(run: Run, tmp_path: Path) -> None:
    write_kaged_plugin(tmp_path, body="def hook(*_):\n    pass\n", hooks=["on_session_start"], hook_timeout_sec=1)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            outcome = await host.fire("on_session_start", {})
            assert [failure.code for _, failure in outcome.skipped] == [Code.TIMEOUT]
            assert await host.call("echo", {"a": 1}) == {"a": 1}
            assert host.plugins()[0].generation == 1

    run(main)


@requirement("kaged:hooks-primary-only")
@pytest.mark.parametrize(
    ("hook", "asked"), [("on_session_start", []), ("on_session_idle", []), ("post_compact", ["p"])]
)
def test_hooks_about_a_session_are_for_the_primary_agent_alone(
    run: Run, tmp_path: Path, hook: str, asked: list[str]
) -> None:
    write_kaged_plugin(tmp_path, body=OBSERVES, hooks=[hook])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert [plugin for plugin, _ in (await host.fire(hook, {})).injections] == ["p"]
            outcome = await host.fire(hook, {}, agent="primary.subagents.x")
            assert [plugin for plugin, _ in outcome.injections] == asked
            assert outcome.skipped == ()

    run(main)


@requirement("kaged:hooks-advise")
def test_a_hook_adds_text_and_stops_or_changes_nothing(run: Run, tmp_path: Path) -> None:
    answer = '{"inject": NAME, "abort": True, "decision": "block", "override": {"transcript": "forged"}}'
    for name in ("a", "b"):
        body = f"def hook(name, params, m):\n    reply(m, {answer})\n"
        write_kaged_plugin(tmp_path / "plugins", name, body, hooks=["on_session_idle"])

    async def main() -> None:
        async with Host.load(tmp_path / "plugins") as host:
            outcome = await host.fire("on_session_idle", {"transcript": "real"})
            assert (outcome.blocked, outcome.event) == (False, {"transcript": "real"})
            assert outcome.injections == (("a", "a"), ("b", "b"))

    run(main)
