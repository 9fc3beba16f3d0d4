"""Checks a JSON frame before it is parsed: UTF-8, bounded structure, and numbers that fit.

Owns the rules that every codec shares and that parsers disagree on. Everything here is a few passes at C
speed over the bytes: no regular expression, no loop over characters, no cost that grows faster than the
frame. The grammar is left to the parser.
"""

from __future__ import annotations

from plugbay.model.values import Value

MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1
"""Integers outside fit neither i64 nor u64: other languages refuse them, or make floats of them silently."""

SMALL_BYTES = 4096
"""Up to here reading every byte is cheapest; beyond, `find` skips a long text 30 times faster than that."""

BLOCK_BYTES = 256
"""Brackets that are counted together."""

FEW_STRINGS = 32
"""How many strings are skipped one by one before reading all is cheaper; a long text has few around it."""


USUAL_DEPTH = 8
"""Levels that are removed one by one: a fraction of a millisecond each in a large screen. What is deeper is counted in
blocks of brackets, which takes six milliseconds at worst where sixty-four rounds take thirty."""


class Malformed(ValueError):
    """The frame is not the JSON we accept: the peer's fault."""


class JsonLimits(Value):
    """How large a document may be besides its bytes: nesting, containers, separators.

    A long document may have a container for every `sparse` bytes, and twice as many commas, if that is more; 0: it may
    not.
    """

    __slots__ = ("brackets", "commas", "depth", "sparse")

    def __init__(self, depth: int = 64, brackets: int = 100_000, commas: int = 500_000, sparse: int = 0) -> None:
        self.depth = depth
        self.brackets = brackets
        self.commas = commas
        self.sparse = sparse

    def for_size(self, size: int) -> JsonLimits:
        """These limits for a document of `size` bytes."""
        grown = min(size, MOST_GROWN) // self.sparse if self.sparse else 0
        return self if grown <= self.brackets else JsonLimits(self.depth, grown, max(self.commas, 2 * grown))


SPARSE = 16
"""Bytes per container of the densest document that is real: a screen, whose coloured cell has five containers and ten
commas in 95 bytes."""

MOST_GROWN = 12 << 20
"""Bytes after which the limits grow no more: 786,432 containers are 150,000 cells, and 0.2 s of parsing."""

MOST_PLAIN = 1 << 20
"""Bytes up to which no limit can have grown."""

DEFAULT_LIMITS = JsonLimits(sparse=SPARSE)
"""4 MiB of `[],` take a parser 100 MiB and 0.4 s, and counting them 4 ms; no real message comes near."""

_FLAT_BYTES = 2 * DEFAULT_LIMITS.depth
"""Bytes in which nothing nests too deeply: a level takes two."""


def _table(kept: bytes, **mapped: bytes) -> bytes:
    """A translation that keeps `kept`, maps each keyword's bytes to that keyword, and blanks the rest."""
    table = bytearray(b" " * 256)
    for byte in kept:
        table[byte] = byte
    for target, sources in mapped.items():
        for byte in sources:
            table[byte] = ord(target)
    return bytes(table)


def _all_but(kept: bytes) -> bytes:
    return bytes(byte for byte in range(256) if byte not in kept)


_STEPS = bytes.maketrans(b"[]", b"\x01\xff")
"""One level down, one level up."""
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = _all_but(b'[]{}"')
_NOT_COMMAS = _all_but(b',"')
_NUMBERS = _table(b'0123456789+-.e"', e=b"E")
_SHAPES = _table(b"", d=b"+-0123456789", e=b"eE")
_LONG_RUN = b"d" * 20
"""Signs count as digits: 19 without sign fit u64, 18 with one fit i64, and a float overflows with 309."""
_LONG_EXPONENT = b"deddd"
"""Two digits of exponent after a mantissa without `_LONG_RUN` cannot overflow."""


def plain_text(chunk: bytes) -> bool:
    """Whether bytes are ASCII without a long number. True of a chunk, it is true of every frame inside.

    With `plainly_flat` it proves that `gate` and `refuse_wide_numbers` have nothing to refuse: so it is with the
    messages of an ordinary conversation, and two cheap looks are enough.
    """
    if not chunk.isascii():
        return False
    shapes = chunk.translate(_SHAPES)
    return shapes.find(_LONG_RUN) < 0 and shapes.find(_LONG_EXPONENT) < 0  # twice as fast as `in`


def plainly_flat(frame: bytes) -> bool:
    """Whether a frame is short and has so few brackets that nothing in it nests too deeply.

    A NUL is not JSON wherever it stands: the parser refuses it.
    """
    size = len(frame)
    if size > _FLAT_BYTES:
        return size <= SMALL_BYTES and frame.count(b"[") + frame.count(b"{") <= DEFAULT_LIMITS.depth
    return True


def gate(frame: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> None:
    """Refuse, before anything is parsed, what is not UTF-8 or would be expensive to parse.

    A small frame may pass with its brackets unbalanced: the parser refuses it, at a bounded cost.
    """
    if not frame.isascii():
        _refuse_bad_utf8(frame)
    if frame and not (frame[0] and frame[-1]):
        raise Malformed("not UTF-8: a NUL where UTF-16 and UTF-32 have one")
    size = len(frame)
    if size <= 2 * limits.depth:  # a level takes two bytes, so what is balanced here is not too deep
        return
    if size > MOST_PLAIN:
        limits = limits.for_size(size)
    if size > limits.commas and without_few_strings(frame).count(b",") > limits.commas:
        _refuse_many_commas(frame, limits)
    if not _few_openers(frame, limits.depth):
        _refuse_brackets(frame, limits)


def refuse_wide_numbers(frame: bytes) -> None:
    """Refuse integers beyond 64 bits and floats that overflow, wherever they stand, parsed or not."""
    if len(frame) > SMALL_BYTES:
        frame = without_few_strings(frame)
    shapes = frame.translate(_SHAPES)
    if shapes.find(_LONG_RUN) < 0 and shapes.find(_LONG_EXPONENT) < 0:
        return
    for token in _numbers(frame):
        if (len(token) >= len(_LONG_RUN) or token.find(b"e") > 0) and _is_wide(token):
            raise Malformed(f"a number is out of range: {token[:40].decode()}")


def _is_wide(token: bytes) -> bool:
    """Whether a number token cannot be held; what is not a number at all is left to the parser."""
    try:
        if not token.lstrip(b"-").isdigit():
            return float(token) in (float("inf"), float("-inf"))
        return len(token) > 21 or not MIN_INTEGER <= int(token) <= MAX_INTEGER
    except ValueError:
        return False


def _refuse_bad_utf8(frame: bytes) -> None:
    if frame.startswith(b"\xef\xbb\xbf"):
        raise Malformed("a byte order mark before the JSON")
    try:
        frame.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8: {error.reason} at byte {error.start}") from None


def _few_openers(frame: bytes, most: int) -> bool:
    """Whether `[` and `{` together occur at most `most` times, strings included: nothing nests deeper."""
    if len(frame) <= SMALL_BYTES:
        return frame.count(b"[") + frame.count(b"{") <= most
    for opener in (b"[", b"{"):
        at = frame.find(opener)
        while at >= 0 and most >= 0:
            most -= 1
            at = frame.find(opener, at + 1)
    return most >= 0


def _refuse_many_commas(frame: bytes, limits: JsonLimits) -> None:
    if len(_structure(frame, None, _NOT_COMMAS, limits.commas)) > limits.commas:
        raise Malformed(f"more than {limits.commas} commas")


def _refuse_brackets(frame: bytes, limits: JsonLimits) -> None:
    most = 2 * limits.brackets  # whatever is opened is closed
    skeleton = _structure(frame, _ONE_KIND, _NOT_BRACKETS, most)
    if len(skeleton) > most:
        raise Malformed(f"more than {limits.brackets} arrays and objects")
    rounds = min(USUAL_DEPTH, limits.depth)
    for _ in range(rounds):  # each round removes the innermost level, everywhere
        before, skeleton = skeleton, skeleton.replace(b"[]", b"")
        if len(before) == len(skeleton):
            break
    else:
        if not _nests_deeper(skeleton, limits.depth - rounds):
            return
    if skeleton:
        raise Malformed(f"nested deeper than {limits.depth}, or brackets without a partner")


def _nests_deeper(skeleton: bytes, most: int) -> bool:
    """Whether brackets nest deeper than `most`. Only a block in which they may is read bracket by bracket."""
    level = 0
    for begin in range(0, len(skeleton), BLOCK_BYTES):
        block = skeleton[begin : begin + BLOCK_BYTES]
        opened = block.count(b"[")
        if level + opened > most and level + _depth(block) > most:
            return True
        level += 2 * opened - len(block)
    return False


def _depth(skeleton: bytes) -> int:
    """How deep brackets nest, with or without a partner."""
    from itertools import accumulate  # only an attack comes here

    return max(accumulate(memoryview(skeleton.translate(_STEPS)).cast("b")), default=0)


def _structure(frame: bytes, table: bytes | None, dropped: bytes, most: int) -> bytes:
    """The bytes outside strings that are not `dropped`; when there are more than `most`, something as long.

    Strings without any kept byte vanish as `""` first. Around each of the others at least one kept byte
    stands outside, so many strings mean many kept bytes, and a frame built to make the split expensive is
    never split.
    """
    kept = _without_escapes(frame).translate(table, dropped).replace(b'""', b"")
    if kept.count(b'"') > 2 * most + 4:
        return kept
    return b"".join(kept.split(b'"')[::2])


def _numbers(frame: bytes) -> list[bytes]:
    """Every number outside strings, with a lower-case exponent; the `e` of `true` and `false` comes along."""
    return b" ".join(_without_escapes(frame).translate(_NUMBERS).split(b'"')[::2]).split()


def without_few_strings(frame: bytes) -> bytes:
    """The frame with a blank for every string; unchanged when they are many or one has an escaped quote."""
    parts: list[bytes] = []
    end = -1
    for _ in range(FEW_STRINGS):
        begin = frame.find(b'"', end + 1)
        if begin < 0:
            return b" ".join((*parts, frame[end + 1 :]))
        parts.append(frame[end + 1 : begin])
        end = frame.find(b'"', begin + 1)
        if end < 0 or frame[end - 1] == 0x5C:
            break
    return frame


def _without_escapes(frame: bytes) -> bytes:
    """The frame with each `\\\\` and then each `\\"` gone, so that every `"` left begins or ends a string."""
    if frame.find(b"\\") < 0:
        return frame
    return frame.replace(b"\\\\", b"").replace(b'\\"', b"")
