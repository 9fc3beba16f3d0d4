"""Forms are checked as the API checks its bodies, and destructive ones ask first."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.api.routes.orgs import OrgIn
from plugbay.server.dashboard.actions import check_document, failed, parse_body
from plugbay.server.domain.errors import GatewayError, unprocessable
from tests.support.dashboards import visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run


def test_a_form_becomes_the_body_of_the_api() -> None:
    body = parse_body(OrgIn, {"name": "Tea", "id": "", "policy": None})
    assert (body.name, body.id, body.policy) == ("Tea", None, {})
    with pytest.raises(GatewayError) as raised:
        parse_body(OrgIn, {"name": "Tea", "id": "a b"})
    assert (raised.value.status, raised.value.param) == (400, "id") and "a b" not in raised.value.message


@pytest.mark.parametrize("value", ["\0", {"\0": 1}, "\ud800", float("nan")])
def test_a_document_that_the_api_refuses_is_refused(value: object) -> None:
    with pytest.raises(GatewayError) as raised:
        check_document({"a": [value]})
    assert raised.value.code == "request.invalid_json"
    assert check_document({"a": [1, "é", None]}) == {"a": [1, "é", None]}


def test_a_refusal_names_all_problems() -> None:
    errors = [{"message": "one"}, {"message": "two"}, {"problem": "three"}]
    notice = failed(unprocessable("a.b", "one", errors=errors))
    assert (notice.tone, notice.text, notice.hint) == ("bad", "One.", "Also: two; three.")


def test_a_confirmation_sends_the_form_again_as_it_was(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            key = await make_key(gateway, "org_1")
            key_id = (await gateway.keys.principal(key)).key_id
            asked = await visitor.post(f"/keys/{key_id}:revoke", {"more": '"\u200b<b>', "confirm": "no"})
            assert 'name="more" value="&#34;\u200b&lt;b&gt;"' in asked.text
            assert f'action="/keys/{key_id}:revoke"' in asked.text and asked.text.count("form_key") == 2

    run(main)
