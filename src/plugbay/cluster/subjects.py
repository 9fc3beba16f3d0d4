"""The subjects of NATS that gateways and nodes of a cell use. Pure.

    pb1.CELL.node.NODE.call, .ctl     a gateway to one node; .part: parts of large inputs, credits
    pb1.CELL.re.gw.GATEWAY.CALL       a node to the gateway of a call; CALL-part: parts of large results, credits
    pb1.CELL.ask.NODE                 a node to any gateway (queue group `gateways`)
    pb1.CELL.re.node.NODE.ASK         a gateway to the node that asked
    pb1.CELL.beat.NODE                a node to all gateways
    pb1.CELL.roll                     a gateway to all nodes
    pb1.CELL.live.ORG.KIND.ID         a gateway to the gateways that watch the org

The name of a node is in each subject that it publishes or listens to, so the permissions of its NATS user decide
which node it can be.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

ROOT = "pb1"

PART = "-part"

LONGEST_WORD = 200
"""Bytes of a word that stands for an id; a longer one is replaced by its hash."""

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
GATEWAYS = "gateways"
"""The queue group in which one gateway gets each question of a node."""


class Subjects(NamedTuple):
    """The subjects of one cell."""

    cell: str

    @property
    def beats(self) -> str:
        """The beats of all nodes."""
        return f"{ROOT}.{self.cell}.beat.*"

    @property
    def roll(self) -> str:
        return f"{ROOT}.{self.cell}.roll"

    def beat(self, node: str) -> str:
        return f"{ROOT}.{self.cell}.beat.{node}"

    def call(self, node: str) -> str:
        return f"{ROOT}.{self.cell}.node.{node}.call"

    def control(self, node: str) -> str:
        return f"{ROOT}.{self.cell}.node.{node}.ctl"

    def part(self, node: str) -> str:
        return f"{ROOT}.{self.cell}.node.{node}.part"

    def reply_part(self, gateway: str, call: str) -> str:
        return f"{self.reply(gateway, call)}{PART}"

    def reply(self, gateway: str, call: str) -> str:
        """Ends in the random id of a call, and only its gateway listens there: no other node can answer it."""
        return f"{ROOT}.{self.cell}.re.gw.{gateway}.{call}"

    @property
    def asks(self) -> str:
        """The questions of all nodes."""
        return f"{ROOT}.{self.cell}.ask.*"

    def ask(self, node: str) -> str:
        return f"{ROOT}.{self.cell}.ask.{node}"

    def answer(self, node: str, ask: str) -> str:
        """Ends in the random id of a question, and only its node listens there."""
        return f"{ROOT}.{self.cell}.re.node.{node}.{ask}"

    def answers(self, node: str) -> str:
        return f"{ROOT}.{self.cell}.re.node.{node}.*"

    def replies(self, gateway: str) -> str:
        return f"{ROOT}.{self.cell}.re.gw.{gateway}.*"

    def live(self, org: str, kind: str, id: str) -> str:
        """The live events of one invocation or run."""
        return f"{ROOT}.{self.cell}.live.{word(org)}.{kind}.{word(id)}"

    def lives(self, org: str | None) -> str:
        """The live events of an org; None: of all orgs."""
        return f"{ROOT}.{self.cell}.live.>" if org is None else f"{ROOT}.{self.cell}.live.{word(org)}.>"


def word(id: str) -> str:
    """One word of a subject for any text; different texts have different words."""
    safe = _UNSAFE.sub(lambda found: b"=%02x" % found[0][0], id.encode("utf-8", "surrogatepass")).decode()
    if 0 < len(safe) <= LONGEST_WORD:
        return safe
    return f"=={sha256(safe.encode()).hexdigest()}"


def last_word(subject: bytes) -> str:
    """The last word of a subject; an empty text when it is no ASCII."""
    try:
        return subject.rpartition(b".")[2].decode("ascii")
    except UnicodeDecodeError:
        return ""


def permissions(cell: str, node: str | None = None) -> dict[str, list[str]]:
    """The permissions of a NATS user: of one node, or of the gateways."""
    root = f"{ROOT}.{cell}"
    if node is None:
        publish = [f"{root}.node.*.*", f"{root}.re.node.>", f"{root}.roll", f"{root}.live.>"]
        subscribe = [f"{root}.re.gw.>", f"{root}.beat.*", f"{root}.live.>", f"{root}.ask.* {GATEWAYS}"]
    else:
        publish = [f"{root}.beat.{node}", f"{root}.re.gw.>", f"{root}.ask.{node}"]
        subscribe = [f"{root}.node.{node}.*", f"{root}.re.node.{node}.>", f"{root}.roll"]
    return {"publish": publish, "subscribe": subscribe}
