"""Who sees what, and who may do what, as tables."""

from __future__ import annotations

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import HOST, OPERATOR, Principal, require_operator_of_all
from tests.support.requirements import requirement

ORG = Principal("key", "org_1", None, "admin", key_id="key_1")
PROJECT = Principal("key", "org_1", "proj_1", "operator", key_id="key_2")
VIEWER = Principal("key", "org_1", None, "viewer", key_id="key_3")
PLUGIN = Principal("delegated", "org_1", "proj_1", scopes=frozenset({"runs:write"}), invocation_id="inv_1")


@requirement("vai:control-cross-tenant")
@pytest.mark.parametrize(
    ("principal", "org", "project", "seen"),
    [
        (OPERATOR, "org_1", "proj_1", True),
        (OPERATOR, None, None, True),
        (ORG, "org_1", "proj_1", True),
        (ORG, "org_1", None, True),
        (ORG, "org_2", None, False),
        (ORG, None, None, False),
        (PROJECT, "org_1", "proj_1", True),
        (PROJECT, "org_1", None, True),
        (PROJECT, "org_1", "proj_2", False),
        (PROJECT, "org_2", "proj_1", False),
        (PLUGIN, "org_1", "proj_1", True),
        (PLUGIN, "org_1", "proj_2", False),
        (Principal("key"), "org_1", None, False),
    ],
)
def test_what_is_anothers_is_not_there(principal: Principal, org: str | None, project: str | None, seen: bool) -> None:
    assert principal.sees(org, project) is seen
    if not seen:
        with pytest.raises(GatewayError) as raised:
            principal.must_see("binding", "bind_1", org, project)
        assert raised.value.status == 404


@requirement("vai:control-scopes")
@pytest.mark.parametrize(
    ("principal", "needs", "any_of", "code"),
    [
        (OPERATOR, ("admin",), (), None),
        (OPERATOR, (HOST,), (), None),
        (ORG, (HOST,), (), "auth.role_denied"),
        (PLUGIN, (HOST,), (), "auth.scope_denied"),
        (VIEWER, ("viewer",), (), None),
        (VIEWER, ("operator",), (), "auth.role_denied"),
        (VIEWER, ("runs:read",), (), None),
        (VIEWER, ("runs:write",), (), "auth.role_denied"),
        (PROJECT, ("runs:write", "chains:write"), (), None),
        (PROJECT, ("admin",), (), "auth.role_denied"),
        (PLUGIN, ("viewer",), (), "auth.scope_denied"),
        (PLUGIN, ("runs:write",), (), None),
        (PLUGIN, ("runs:write", "chains:write"), (), "auth.scope_denied"),
        (PLUGIN, (), ("runs:read", "runs:write"), None),
        (PLUGIN, (), ("runs:read", "chains:read"), "auth.scope_denied"),
    ],
)
def test_what_a_route_needs_is_had_or_named(
    principal: Principal, needs: tuple[str, ...], any_of: tuple[str, ...], code: str | None
) -> None:
    refusal = principal.lacks(needs, any_of)
    assert (refusal and refusal.code) == code
    if refusal is not None:
        assert refusal.status == 403 and refusal.details["required"] == list(any_of or needs)


def test_each_principal_has_an_id_for_the_log() -> None:
    assert [each.id for each in (OPERATOR, ORG, PLUGIN)] == ["operator", "key_1", "inv_1"]


@requirement("vai:control-scopes")
def test_the_operator_of_all_orgs_is_told_apart_from_an_admin_of_one() -> None:
    require_operator_of_all(OPERATOR, "does this")
    for caller in (ORG, PROJECT, VIEWER, PLUGIN):
        with pytest.raises(GatewayError, match="only the operator of all orgs does this") as caught:
            require_operator_of_all(caller, "does this")
        assert (caught.value.status, caught.value.details) == (403, {"required": ["operator of all"]})
