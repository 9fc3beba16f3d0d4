"""Forms with files: bounded in every dimension, and refused before the file where the form is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.dashboard import uploads
from plugbay.server.dashboard.pages.packages import FILES
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.dashboards import ORIGIN, Visitor, text_of, visitor_of
from tests.support.gateways import gateway_at
from tests.support.loops import Run

HEADERS = {"origin": ORIGIN, "content-type": "multipart/form-data; boundary=b"}


def part(name: str, data: bytes, more: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + data + b"\r\n"


async def send(visitor: Visitor, *parts: bytes, end: bytes = b"--b--\r\n", **headers: str) -> tuple[int, str]:
    answer = await visitor.client.post("/packages", content=b"".join(parts) + end, headers=HEADERS | headers)
    return answer.status_code, text_of(answer)


def test_a_form_that_is_not_ours_is_refused_before_its_file(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            key, file = part("form_key", visitor.form_key.encode()), part("archive", b"x" * 100)
            assert (await send(visitor, file, key))[0] == 403, "the key must come first"
            assert (await send(visitor, part("form_key", b"wrong"), file))[0] == 403
            assert (await send(visitor, file))[0] == (await send(visitor))[0] == 403
            assert (await send(visitor, key, file, origin="http://127.0.0.1:3000"))[0] == 403
            bare = HEADERS | {"content-type": "multipart/form-data"}
            assert (await visitor.client.post("/packages", content=key + file, headers=bare)).status_code == 400
            plain = await visitor.post("/packages", {"archive": "x"})
            assert plain.status_code == 400 and "multipart/form-data" in plain.text
            status, text = await send(visitor, key, file)
            assert status == 422 and "archive" in text, "what is not an archive is refused by the packages themselves"
            assert not (await gateway.packages.page(OPERATOR, Page())).items

    run(main)


def test_a_form_is_bounded(sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "archive", 1_000)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            key = part("form_key", visitor.form_key.encode())
            assert (await send(visitor, key, part("archive", b"x" * 1_001)))[0] == 413
            assert (await send(visitor, key, part("archive", b"x" * 1_000)))[0] == 422, "the control"
            assert (await send(visitor, key, part("note", b"x" * (uploads.MAX_FIELD + 1))))[0] == 413
            many = [part(f"n{number}", b"") for number in range(uploads.MAX_PARTS)]
            assert (await send(visitor, key, *many))[0] == 400
            header = f"; x={'y' * uploads.MAX_HEADER}"
            assert (await send(visitor, key, part("archive", b"x", header)))[0] == 400
            assert (await send(visitor, key, part("archive", b"x"), part("archive", b"y")))[0] == 400
            assert (await send(visitor, key, part("archive", b"x"), end=b""))[0] == 400, "it was cut off"
            assert (await send(visitor, b"no form at all"))[0] == 400
            status, text = await send(visitor, key, part("archive", b"", '; filename=""'))
            assert status == 400 and "Choose the file of a package" in text

    run(main)
