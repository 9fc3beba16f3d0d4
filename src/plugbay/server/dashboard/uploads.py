"""Forms with files: streamed to a folder, bounded, and refused before the file if the form key is wrong.

    @require_upload("admin", FILES)
    async def upload(visit: Visit, files: Mapping[str, Path]) -> Response: ...

Names of files in the form are ignored. The key must come before the files, as it does in our pages.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request
from starlette.responses import Response

from plugbay.server.dashboard.authentication import (
    Endpoint,
    Visit,
    admit_visit,
    check_form_key,
    check_form_origin,
    keep_session,
    login_page,
)
from plugbay.server.domain.errors import invalid, too_large

MAX_PARTS = 20
"""Fields and files of one form: ours have three."""

MAX_FIELD = 4 << 10
"""Bytes of a field that is not a file."""

MAX_HEADERS, MAX_HEADER = 8, 1 << 10
"""Headers of a part, and bytes of each."""

UploadHandler = Callable[[Visit, Mapping[str, Path]], Awaitable[Response]]


def require_upload(need: str, files: Mapping[str, int]) -> Callable[[UploadHandler], Endpoint]:
    """Decorator: serve a form with these files (name and maximum of bytes) to sessions with this permission."""

    def decorate(handler: UploadHandler) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            visit = await admit_visit(request, need)
            if visit is None:
                return login_page(request, 401)
            check_form_origin(request)
            with tempfile.TemporaryDirectory(prefix="plugbay-upload-") as folder:
                parts = _Parts(visit, files, Path(folder))
                try:
                    await parts.read(request)
                finally:
                    parts.close()
                check_form_key(parts.visit)
                response = await handler(parts.visit, parts.files)
                await keep_session(parts.visit)
                return response

        return endpoint

    return decorate


class _Parts:
    """The parts of one form."""

    def __init__(self, visit: Visit, allowed: Mapping[str, int], folder: Path) -> None:
        self.visit = visit
        self.files: dict[str, Path] = {}
        self._allowed = allowed
        self._folder = folder
        self._parts = 0
        self._header = self._value = b""
        self._name = ""
        self._field = b""
        self._file: BinaryIO | None = None
        self._size = 0
        self._pieces: list[tuple[BinaryIO, bytes]] = []
        self._complete = False

    async def read(self, request: Request) -> None:
        """Read the whole body; raises for anything that our pages do not send."""
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise invalid("request.invalid", "a file must be sent as multipart/form-data")
        try:
            parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._add_header,
                    "on_header_value": self._add_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._open,
                    "on_part_data": self._add_data,
                    "on_part_end": self._end,
                    "on_end": self._finish,
                },
                max_header_count=MAX_HEADERS,
                max_header_size=MAX_HEADER,
            )
            async for piece in request.stream():
                parser.write(piece)
                await asyncio.to_thread(self._write)
        except FormParserError:
            raise invalid("request.invalid", "the form is damaged") from None
        if not self._complete:
            raise invalid("request.invalid", "the end of the form is missing")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self) -> None:
        pieces, self._pieces = self._pieces, []
        for file, piece in pieces:
            file.write(piece)
            file.flush()

    # Called by the parser.

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise invalid("request.invalid", f"a form has at most {MAX_PARTS} parts")
        self._header = self._value = self._field = b""
        self._name, self._size = "", 0

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(self._value)
            self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._header = self._value = b""

    def _open(self) -> None:
        if self._name not in self._allowed:
            return
        check_form_key(self.visit)
        if self._name in self.files:
            raise invalid("request.invalid", "a file appears twice")
        self.files[self._name] = path = self._folder / self._name
        self._file = path.open("xb")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        most = self._allowed.get(self._name, MAX_FIELD)
        if self._size > most:
            raise too_large("package.too_large", f"{self._name!r:.60} has more than {most:,} bytes", limit=most)
        if self._file is None:
            self._field += data[start:end]
        else:
            self._pieces.append((self._file, data[start:end]))

    def _end(self) -> None:
        if self._file is None:
            text = self._field.decode("utf-8", "replace")
            form = {**self.visit.form, self._name: (*self.visit.form.get(self._name, ()), text)}
            self.visit = replace(self.visit, form=form)
            return
        self._write()
        self._file.close()
        self._file = None
        if not self._size:  # an empty field for a file
            self.files.pop(self._name).unlink()

    def _finish(self) -> None:
        self._complete = True
