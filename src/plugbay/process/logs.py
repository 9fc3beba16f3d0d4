"""The log files of a host's plugins: one for each label, in one folder."""

from __future__ import annotations

from pathlib import Path

from plugbay.process.stderr import RotatingLog, log_name


class Logs:
    """Children of one plugin share its log; without a folder nobody has one."""

    __slots__ = ("_folder", "_open")

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._open: dict[str, RotatingLog] = {}

    def of(self, label: str) -> RotatingLog | None:
        if self._folder is None:
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)  # each time: somebody may have cleaned up
        except OSError:
            pass  # the log itself counts what it cannot write
        if label not in self._open:
            self._open[label] = RotatingLog(self._folder / log_name(label))
        return self._open[label]
