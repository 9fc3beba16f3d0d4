"""The messages between a host and a plugin, as values and as lines of JSON.

    {"plugbay_recording":1,"contract":…,"plugin":{"id":…,"version":…},"manifest_digest":…,"began_at":…}
    {"t":0.013,"link":1,"event":"spawn","pid":4711}
    {"t":0.014,"link":1,"direction":"host","size":61,"frame":{…},"redacted":["/params/token"]}
    {"t":0.019,"link":1,"direction":"plugin","size":9,"frame":"bm90IEpTT04=","encoding":"base64"}
    {"t":0.020,"link":1,"stderr":"a line"}
    {"t":0.100,"link":1,"event":"exit","code":0,"signal":null}
    {"ended_at":…,"frames":2,"redactions":1,"dropped":0}

Owns the format and its version. A reader tolerates lines and keys of later versions, and a last line that was not
finished. Secrets are redacted before values come here.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.contracts.base import Role
from plugbay.model.errors import PlugbayError
from plugbay.wire.fast_json import MsgspecCodec

VERSION = 1
"""Version of the format. A reader accepts this one; additions are keys and lines that it may ignore."""

MARK = "plugbay_recording"
"""The key by which the first line of a recording is known, with the version."""

HEAD_BYTES = 1024
"""Bytes that are kept of a frame that is too long: enough to recognise it."""

SPAWN, JOINED, EXIT = "spawn", "joined", "exit"
"""A process was born; one that lives already was tapped; one has ended."""

_CODEC = MsgspecCodec()
_DECODER = msgspec.json.Decoder()
"""Without the limits of the wire: a line is a level deeper than the frame in it, which may have reached them."""


class BadRecording(PlugbayError):
    """A file that is not a recording, or one that cannot be read."""


class Frame(msgspec.Struct, frozen=True):
    """One message. `value` is its JSON; one that has none, or was cut, has its (first) bytes in `raw`."""

    t: float
    """Seconds since the recording began, on a clock that never jumps."""
    link: int
    """Which of the conversations, one for each process."""
    direction: str
    """The sender: a `Role`."""
    size: int
    """Bytes on the wire, without line end or length header."""
    value: Any = None
    raw: bytes | None = None
    redacted: tuple[str, ...] = ()
    """JSON pointers to redacted or shortened values."""
    problem: str = ""
    """Why it is not a message."""
    cut: str = ""
    """The digest of the whole of it, without secrets, when only its beginning is here."""

    def shortened(self, most: int) -> Frame:
        """The frame, or its beginning when it is longer than `most`."""
        if self.size <= most or self.cut:
            return self
        whole = _CODEC.encode(self.value) if self.raw is None else self.raw
        digest = f"sha256:{hashlib.sha256(whole).hexdigest()}"
        return replace(self, value=None, raw=whole[:HEAD_BYTES], cut=digest)

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"t": round(self.t, 6), "link": self.link, "direction": self.direction}
        said |= {"size": self.size}
        if self.raw is None:
            said |= {"frame": self.value}
        else:
            said |= {"frame": b64encode(self.raw).decode(), "encoding": "base64"}
        more = {"redacted": list(self.redacted), "problem": self.problem, "cut": self.cut}
        return said | {key: value for key, value in more.items() if value}


class StderrLine(msgspec.Struct, frozen=True):
    """A line that the plugin wrote beside the conversation."""

    t: float
    link: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"t": round(self.t, 6), "link": self.link, "stderr": self.text}


class Happening(msgspec.Struct, frozen=True):
    """The beginning or the end of a process."""

    t: float
    link: int
    event: str
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"t": round(self.t, 6), "link": self.link, "event": self.event, **self.facts}


Item = Frame | StderrLine | Happening


class Header(msgspec.Struct, frozen=True):
    """Whose conversation it is."""

    contract: str
    plugin_id: str
    plugin_version: str
    manifest_digest: str = ""
    began_at: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            MARK: VERSION,
            "contract": self.contract,
            "plugin": {"id": self.plugin_id, "version": self.plugin_version},
            "manifest_digest": self.manifest_digest,
            "began_at": self.began_at,
        }


class Recording(msgspec.Struct, frozen=True):
    """Everything that one file holds. `lines` has the number of the line of each item."""

    header: Header
    items: tuple[Item, ...]
    lines: tuple[int, ...]
    end: Mapping[str, Any] | None = None
    """The counts of the writer; None if it was stopped before it wrote them."""
    torn: bool = False
    """Whether the last line was left unfinished."""

    @property
    def redactions(self) -> list[tuple[int, Frame, str]]:
        """Every place where something was taken out: the line, the frame and the pointer."""
        return [(line, frame, path) for line, frame in self.frames() for path in frame.redacted]

    def frames(self) -> list[tuple[int, Frame]]:
        """Every frame with the number of its line."""
        return [(line, item) for line, item in zip(self.lines, self.items, strict=True) if isinstance(item, Frame)]


def encode(item: Item | Header | Mapping[str, Any]) -> bytes:
    """One line."""
    return _CODEC.encode(item if isinstance(item, Mapping) else item.to_json()) + b"\n"


def read(lines: Iterable[bytes]) -> Recording:
    """The recording in these lines; raises `BadRecording` with line and reason."""
    header: Header | None = None
    end: Mapping[str, Any] | None = None
    items: list[tuple[int, Item]] = []
    unread: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        if unread is not None:
            raise BadRecording(f"line {unread[0]} cannot be read: {unread[1]}")
        try:
            said = _object(line)
            if header is None:
                header = _header(said)
            elif "ended_at" in said:
                end = said
            elif (item := _item(said)) is not None:
                items.append((number, item))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            unread = (number, str(error))
    if header is None:
        raise BadRecording("this is not a recording: its first line does not say plugbay_recording")
    return Recording(header, tuple(item for _, item in items), tuple(at for at, _ in items), end, unread is not None)


def is_header(line: bytes) -> bool:
    """Whether a file that begins with this line is a recording."""
    try:
        return MARK in _object(line)
    except (ValueError, RecursionError):
        return False


def _object(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise ValueError("it is truncated")
    said = _DECODER.decode(line)
    if not isinstance(said, dict):
        raise ValueError("it is not a JSON object")
    return said


def _header(said: dict[str, Any]) -> Header:
    version = said.get(MARK)
    if version is None:
        raise BadRecording("this is not a recording: its first line does not say plugbay_recording")
    if version != VERSION:
        raise BadRecording(f"it has version {version!r:.20} of the format; this plugbay reads version {VERSION}")
    plugin = said["plugin"]
    texts = (said["contract"], plugin["id"], plugin["version"], said["manifest_digest"], said["began_at"])
    if not all(isinstance(text, str) for text in texts):
        raise BadRecording("its first line does not name the plugin")
    return Header(*texts)


def _item(said: dict[str, Any]) -> Item | None:
    """None for a line of a kind that is not known yet."""
    t, link = float(said["t"]), int(said["link"])
    if "direction" in said:
        return _frame(said, t, link)
    if "stderr" in said:
        return StderrLine(t, link, str(said["stderr"]))
    if "event" in said:
        facts = {key: value for key, value in said.items() if key not in ("t", "link", "event")}
        return Happening(t, link, str(said["event"]), facts)
    return None


def _frame(said: dict[str, Any], t: float, link: int) -> Frame:
    if said["direction"] not in (Role.HOST, Role.PLUGIN):
        raise ValueError("its direction is neither host nor plugin")
    raw = b64decode(said["frame"], validate=True) if said.get("encoding") == "base64" else None
    return Frame(
        t,
        link,
        said["direction"],
        int(said["size"]),
        said["frame"] if raw is None else None,
        raw,
        tuple(map(str, said.get("redacted", ()))),
        str(said.get("problem", "")),
        str(said.get("cut", "")),
    )
