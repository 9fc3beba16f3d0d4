"""Views of confinement."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli.render import output, policy_view
from plugbay.host.confinement.policy import Confinement
from plugbay.model.errors import Code, Failure
from plugbay.process.sandbox.policy import MIB, Endpoint, Limits, Network, Policy, Reach

OPEN = Policy(
    Path("/p"),
    read=(Path("/a"), Path("/b"), Path("/c")),
    write=(Path("/w"),),
    run=(Path("/r"),),
    state=Path("/s"),
    network=Network(Reach.LISTED, (Endpoint("a.example", 443),)),
    limits=Limits(memory=1024 * MIB, cpu=2.5, file_size=1000),
)


def shown(confinement: Confinement, capsys: pytest.CaptureFixture[str]) -> list[str]:
    output.out.cache_clear()
    policy_view.show(output.out(), confinement)
    output.out.cache_clear()
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_everything_a_policy_opens_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(
        Confinement(OPEN, notes=("it may read /x, but that path does not exist",), has_scratch=True), capsys
    ) == [
        "sandbox confined",
        "reads /a",
        "/b",
        "/c",
        "writes /w",
        "runs /r",
        "keeps /s, up to 256 MiB",
        "scratch a folder for each invocation",
        "network a.example:443",
        "limits 1 GiB memory · 2.5 cores · 256 processes · 4,096 open files · 1,000 bytes a file · 64 MiB in /tmp",
        "missing it may read /x, but that path does not exist",
    ]


def test_private_addresses_are_shown_to_whom_they_are_open(capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("10.0.0.1:80",)
    network = Network(Reach.LISTED, (Endpoint("a.example", 80),), pair)
    assert "private 10.0.0.1:80" in shown(Confinement(Policy(Path("/p"), network=network)), capsys)
    closed = Policy(Path("/p"), network=Network(private=pair))
    assert not any("10.0.0.1" in line for line in shown(Confinement(closed), capsys))


def test_the_smallest_policy_is_shown_with_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    first, *rest = shown(Confinement(Policy(Path("/p"))), capsys)
    assert (first, rest[0]) == ("sandbox confined", "network none")
    assert len(rest) == 2


def test_why_there_is_no_policy_is_all_there_is_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Confinement(reason="ours", downgrade=True), capsys) == ["sandbox unconfined: ours"]
    refusal = Failure(Code.SANDBOX_UNAVAILABLE, "no", detail={"hint": "do this"})
    assert shown(Confinement(refusal=refusal), capsys) == ["sandbox refused: no", "hint do this"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (None, ""),
        (Policy(Path("/p")), "network none"),
        (OPEN, "reads /a and 2 more · writes /w · runs /r · keeps state · network a.example:443"),
        (Policy(Path("/p"), network=Network(Reach.HOST)), "network the machine's own, unchecked"),
    ],
)
def test_a_policy_in_one_line(policy: Policy | None, text: str) -> None:
    assert policy_view.summarize(Confinement(policy)) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 bytes"), (1, "1 bytes"), (2048, "2 KiB"), (3 << 30, "3 GiB")])
def test_a_size_has_the_largest_unit_that_fits(number: int, text: str) -> None:
    assert policy_view.size(number) == text
