"""Whatever `json` reads and writes, it reads and writes the same, without loading `json`."""

from __future__ import annotations

import json
import math
import runpy
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.conformance.engine.manifests import LIGHT_JSON
from tests.support.tiers import exhaustive

LIGHT = runpy.run_path(str(LIGHT_JSON))

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@exhaustive
@given(VALUES, st.booleans(), st.sampled_from([(", ", ": "), (",", ":")]))
def test_a_value_is_written_as_json_writes_it(value: Any, ensure_ascii: bool, separators: tuple[str, str]) -> None:
    written = LIGHT["dumps"](value, ensure_ascii=ensure_ascii, separators=separators)
    assert written == json.dumps(value, ensure_ascii=ensure_ascii, separators=separators)


@exhaustive
@given(VALUES, st.sampled_from(["", " ", "\r\n"]))
def test_what_json_writes_is_read(value: Any, around: str) -> None:
    text = f"{around}{json.dumps(value)}{around}"
    assert LIGHT["loads"](text) == LIGHT["loads"](text.encode()) == value


@exhaustive
def test_what_is_no_number_is_read_as_json_reads_it() -> None:
    nan, *infinite = LIGHT["loads"]("[NaN, Infinity, -Infinity]")
    assert math.isnan(nan) and infinite == [math.inf, -math.inf]


@exhaustive
@pytest.mark.parametrize("text", ["", "{", '{"a": 1', '{"a": }', "[1] 2", "'a'", '"\n"', b"\xff"])
def test_what_is_no_json_is_refused_as_json_refuses_it(text: str | bytes) -> None:
    with pytest.raises(ValueError) as theirs:
        json.loads(text)
    with pytest.raises(ValueError) as ours:
        LIGHT["loads"](text)
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


@exhaustive
def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no JSON form"):
        LIGHT["dumps"]({"a": {1}})


LOADS = """
import runpy, sys
{before}
light = runpy.run_path({path!r})
value = light["loads"](light["dumps"]({{"a": [1.5, "é"]}}))
assert value == {{"a": [1.5, "é"]}}
print("json" in sys.modules)
"""


@exhaustive
@pytest.mark.parametrize(("before", "loaded"), [("", "False"), ("sys.modules['_json'] = None", "True")])
def test_the_package_is_loaded_only_where_there_is_no_accelerator(before: str, loaded: str) -> None:
    program = LOADS.format(before=before, path=str(LIGHT_JSON))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loaded


@exhaustive
def test_what_the_accelerator_cannot_refuse_without_the_package_is_refused_by_it() -> None:
    program = f"import runpy; runpy.run_path({str(LIGHT_JSON)!r})['loads']('{{')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert "json.decoder.JSONDecodeError" in done.stderr
