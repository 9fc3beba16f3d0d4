"""What a plugin is given in a file instead of in the message that asks it.

Owns the file and the reference to it, as vai has them. Refuses to know what is in it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


class Filed:
    """A generator: `[name, media type, value]` becomes the reference to a file with the value as JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, asked: list[Any]) -> dict[str, Any]:
        name, media_type, value = asked
        data = json.dumps(value, ensure_ascii=False).encode()
        (self._folder / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        return {"path": name, "media_type": media_type, "size_bytes": len(data), "sha256": digest}
