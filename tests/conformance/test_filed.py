"""A value is put into a file, and the reference says how to know it again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from plugbay.conformance.filed import Filed


def test_a_reference_says_where_the_file_is_and_what_is_in_it(tmp_path: Path) -> None:
    reference = Filed(tmp_path)(["a.json", "text/x", {"blocks": ["été"]}])
    data = (tmp_path / "a.json").read_bytes()
    assert data == '{"blocks": ["été"]}'.encode()
    assert reference == {
        "path": "a.json",
        "media_type": "text/x",
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
