"""`framing`: the cost of the wire layer per message, in units of a plain msgspec decode of the same message.

Microbenchmarks of the framing decoders, the gate and the codecs. Each figure is the fastest of several batches, because
other load can only add time. Frames are JSON-RPC responses with 100 B, 64 KiB and 1 MiB of text. There are no goals:
these figures explain the others.
"""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from typing import Any

from bench.harness import Column, Comparison, Entry, Finding, Options, Rounds, Sample, interleave, serve

NAME = "framing"
TITLE = "The wire layer, per message, in units of a plain msgspec decode of that message"

BATCH_SECONDS = 0.004
BATCHES = 7
READ_SIZE = 65_536
TEXTS = {"100 B": 100, "64 KiB": 65_536, "1 MiB": 1_048_576}
MAX_LINE = 16 << 20
REFERENCE = "msgspec: decode"
TOGETHER = 64
"""Small messages that arrive in one read; figures are per message all the same."""

Work = Callable[[], object]


def run(options: Options) -> Comparison:
    """All cases of one size in one process per round."""
    entries = [Entry(size, size, {"length": length}) for size, length in TEXTS.items()]
    rounds = interleave("bench.framing_bench", entries, options)
    findings = [
        Finding(case, rounds.ratio(size, size, case, REFERENCE), group=size)
        for size in TEXTS
        for case in rounds.samples[size][0]
        if case != REFERENCE
    ]
    columns = [Column(size, f"{size}, us", scale=1e-3, digits=2) for size in TEXTS]
    return Comparison(NAME, TITLE, findings, columns, _turned(rounds))


def _turned(rounds: Rounds) -> Rounds:
    """The same samples with one row per case and one figure per size, for the table of absolute figures."""
    cases = list(rounds.samples[next(iter(TEXTS))][0])
    turned = Rounds([Entry(case, case) for case in cases])
    for case in cases:
        for samples in zip(*(rounds.samples[size] for size in TEXTS), strict=True):
            pairs = zip(TEXTS, samples, strict=True)
            turned.samples[case].append({size: sample[case] for size, sample in pairs if case in sample})
    return turned


# The contender.


def everything(params: dict[str, Any]) -> Sample:
    sample = {name: _fastest_ns(work) for name, work in _cases(params["length"]).items()}
    together = {name: ns / TOGETHER for name, ns in sample.items() if name.endswith(f"{TOGETHER} at once")}
    return sample | together


def _fastest_ns(work: Work) -> float:
    timer = timeit.Timer(work)
    number = 1
    while timer.timeit(number) < BATCH_SECONDS:
        number *= 2
    return min(timer.repeat(BATCHES, number)) / number * 1e9


def _cases(length: int) -> dict[str, Work]:
    """Every case for one size of text; the reference comes first."""
    import msgspec

    from plugbay.wire.json_gate import gate, refuse_wide_numbers

    value = {"jsonrpc": "2.0", "id": 12345, "result": {"text": "x" * length}}
    frame = json.dumps(value, separators=(",", ":")).encode()
    decode = msgspec.json.Decoder().decode
    encode = msgspec.json.Encoder().encode
    cases: dict[str, Work] = {
        REFERENCE: lambda: decode(frame),
        "msgspec: encode": lambda: encode(value),
        "json.loads": lambda: json.loads(frame),
        "json.dumps": lambda: json.dumps(value),
        "gate: structure": lambda: gate(frame),
        "gate: numbers": lambda: refuse_wide_numbers(frame),
    }
    return cases | _codec_cases(value, frame) | _framing_cases(frame)


def _codec_cases(value: dict[str, Any], frame: bytes) -> dict[str, Work]:
    from plugbay.wire.fast_json import MsgspecCodec
    from plugbay.wire.strict_json import stdlib_codec
    from tests.support import jsonrpc

    fast, stdlib = MsgspecCodec(), stdlib_codec()
    envelope = fast.decoder(jsonrpc.FIELDS, jsonrpc.RAW_FIELDS)
    result = fast.dump(value["result"])
    return {
        "host codec: decode": lambda: fast.decode(frame),
        "host codec: envelope, payload left raw": lambda: envelope(frame),
        "host codec: load a raw payload": lambda: fast.load(result),
        "host codec: encode": lambda: fast.encode(value),
        "host codec: envelope around a raw payload": lambda: jsonrpc.result(12345, fast.encode(result)),
        "plugin codec: decode": lambda: stdlib.decode(frame),
        "plugin codec: encode": lambda: stdlib.encode(value),
    }


def _framing_cases(frame: bytes) -> dict[str, Work]:
    """A message in pieces of one read."""
    from plugbay.wire import content_length, lines

    line, block = lines.encode(frame), content_length.encode(frame, MAX_LINE)
    of_lines = lines.LineDecoder(MAX_LINE)
    of_blocks = content_length.ContentLengthDecoder(content_length.STRICT_HEADERS)
    cases: dict[str, Work] = {
        "lines: encode": lambda: lines.encode(frame),
        "lines: decode": _feeding(of_lines.feed, line),
        "Content-Length: encode": lambda: content_length.encode(frame, MAX_LINE),
        "Content-Length: decode": _feeding(of_blocks.feed, block),
    }
    if len(line) * TOGETHER <= READ_SIZE:
        cases[f"lines: decode, {TOGETHER} at once"] = _feeding(of_lines.feed, line * TOGETHER)
        cases[f"Content-Length: decode, {TOGETHER} at once"] = _feeding(of_blocks.feed, block * TOGETHER)
    return cases


def _feeding(feed: Callable[[bytes], object], data: bytes) -> Work:
    pieces = [data[at : at + READ_SIZE] for at in range(0, len(data), READ_SIZE)]
    if len(pieces) == 1:
        return lambda: feed(data)

    def work() -> None:
        for piece in pieces:
            feed(piece)

    return work


if __name__ == "__main__":
    serve(dict.fromkeys(TEXTS, everything))
