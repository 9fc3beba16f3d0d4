"""Every route, asked by everybody: what each route needs decides who gets through, and nothing else does.

The routes are those of the application itself. Each has one good request in `ASKS`; who may make it follows from what
the route says it needs, from whose thing the request is about, and from the few rules in `OPERATOR_ALONE` and
`WHOLE_ORG_ALONE`.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.routing import APIRoute

from plugbay.packages import keys
from plugbay.packages.registry import ARCHIVE_TYPE
from plugbay.server.api.caller import NEEDS, NEEDS_ONE
from plugbay.server.api.sse import MEDIA_TYPE
from plugbay.server.app import ROUTERS
from tests.support.requirements import requirement
from tests.support.tiers import one_of_each
from tests.support.worlds import EVERY_SCOPE, World, world_at

ROUTES = {
    f"{method} {route.path}": route
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
}

OPEN = {"GET /livez", "GET /readyz"}
"""Asked without a key, by machines that have none."""

OPERATOR_ALONE = {
    "POST /v1/orgs",
    "POST /v1/secrets:rotate-key",
    "GET /v1/trusted-publishers",
    "POST /v1/trusted-publishers",
    "DELETE /v1/trusted-publishers/{key_id}",
    "POST /v1/plugin-marketplace",
    "DELETE /v1/plugin-marketplace/{card_id}",
}
"""What concerns all orgs is for the operator of all of them, whatever role a key has."""

WHOLE_ORG_ALONE = {
    "PATCH /v1/orgs/{org_id}",
    "POST /v1/orgs/{org_id}/projects",
    "DELETE /v1/plugin-packages/{package}",
    "GET /v1/plugin-packages/{package}/logs",
    "GET /v1/audit/verification",
}
"""What concerns a whole org is not for a key of one of its projects."""

OWN_RUNS = {"POST /v1/runs/{run_id}:cancel", "POST /v1/runs/{run_id}:regenerate"}
"""A plugin that may write runs and not read them reaches those that it made itself; and it cancels no others."""

DEAD = {
    "nobody": "auth.missing",
    "wrong": "auth.key_unknown",
    "expired": "auth.token_expired",
    "revoked": "auth.key_revoked",
    "expired token": "auth.token_expired",
    "revoked token": "auth.token_revoked",
}

ROLES = ("viewer", "operator", "admin")
PEOPLE = {
    "viewer": "viewer",
    "operator": "operator",
    "admin": "admin",
    "stranger": "admin",
    "project": "admin",
    "neighbour": "admin",
    "bootstrap": "admin",
}
PROJECT_KEYS = ("project", "neighbour")

SCOPE = {"org_id": "org_1", "project_id": "proj_1"}
HELLO = [{"kind": "input", "content": [{"type": "text", "text": "hello"}]}]
SECRET = {"value": "a secret of the matrix", **SCOPE}


@dataclass(frozen=True)
class Ask:
    """A good request, and whose thing it is about; None: nobody's, or a list of what the caller can see."""

    path: str
    of: Literal["org", "project"] | None = None
    body: Any = None
    more: dict[str, Any] = field(default_factory=dict)


def at(path: str, of: Literal["org", "project"] | None = None, body: Any = None) -> Callable[[World], Ask]:
    """The same request every time, with the ids of the world."""
    return lambda world: Ask(path.format(**world.ids), of, body)


def about(path: str, **body: str) -> Callable[[World], Ask]:
    """The same with ids in its body, each the one of that name."""
    return lambda world: Ask(path.format(**world.ids), "project", {k: v.format(**world.ids) for k, v in body.items()})


def in_new_chain(path: str, **body: Any) -> Callable[[World], Ask]:
    """On a chain of its own: a chain takes one run at a time."""

    def ask(world: World) -> Ask:
        made = {"session_id": world.ids["session_id"], "defaults": {"model": "m"}}
        chain = world.made("POST", "/v1/chains", made)
        named = {"chain_id": chain} if "{chain_id}" not in path else {}
        return Ask(path.format(chain_id=chain), "project", {**named, **body})

    return ask


def once_ended(path: str, operation: str) -> Callable[[World], Ask]:
    """When the thing is not at work."""

    def ask(world: World) -> Ask:
        place = path.format(**world.ids)
        while world.ask("admin", "GET", place).json()["status"] in ("queued", "running", "pending", "delivering"):
            pass
        return Ask(f"{place}:{operation}", "project")

    return ask


_VERSIONS = itertools.count()


def upload(world: World) -> Ask:
    packed = world.publisher.pack(package="acme/up", version=f"1.0.{next(_VERSIONS)}")
    headers = {"content-type": ARCHIVE_TYPE, **world.publisher.header(packed)}
    return Ask("/v1/plugin-packages", None, None, {"content": packed.path.read_bytes(), "headers": headers})


def package_deletion(world: World) -> Ask:
    packed = world.publisher.pack(package="acme/gone", version=f"1.0.{next(_VERSIONS)}")
    headers = {"content-type": ARCHIVE_TYPE, **world.publisher.header(packed)}
    made = world.ask("admin", "POST", "/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
    return Ask(f"/v1/plugin-packages/{made.json()['id']}", "org")


def binding_deletion(world: World) -> Ask:
    return Ask(f"/v1/plugin-bindings/{world.made('POST', '/v1/plugin-bindings', BINDING, 'binding_id')}", "project")


def trust_addition(world: World) -> Ask:
    public = keys.public_of(Ed25519PrivateKey.generate())
    body = {"public_key": base64.b64encode(public).decode(), "publisher": "matrix", "other_keys": "keep"}
    return Ask("/v1/trusted-publishers", None, body)


def trust_removal(world: World) -> Ask:
    added = world.ask("bootstrap", "POST", "/v1/trusted-publishers", json=trust_addition(world).body)
    return Ask(f"/v1/trusted-publishers/{added.json()['key_id']}")


def publication(world: World) -> Ask:
    entry = {"id": f"entry-{next(_VERSIONS)}", "package": world.ids["shared_package"], "export_id": "t"}
    return Ask("/v1/plugin-marketplace", None, entry)


def unpublication(world: World) -> Ask:
    made = world.ask("bootstrap", "POST", "/v1/plugin-marketplace", json=publication(world).body)
    return Ask(f"/v1/plugin-marketplace/{made.json()['id']}")


def deletion(world: World) -> Ask:
    assert world.ask("admin", "PUT", "/v1/secrets/gone", json=SECRET).is_success
    return Ask("/v1/secrets/gone", "project", None, {"params": SCOPE})


def cancellation(world: World) -> Ask:
    done = world.ask("admin", "POST", "/v1/plugin-invocations", json={"binding_id": world.ids["binding_id"]})
    return Ask(f"/v1/plugin-invocations/{done.json()['invocation']['invocation_id']}:cancel", "project")


def download(world: World) -> Ask:
    body = {"binding_id": world.ids["writer"]}
    done = world.ask("admin", "POST", "/v1/plugin-invocations", json=body).json()
    (ref,) = done["result"]["artifacts"]
    path = f"/v1/plugin-invocations/{done['invocation']['invocation_id']}/artifacts/{ref['asset_id']}"
    return Ask(path, "project")


def abandonment(world: World) -> Ask:
    begun = world.made("POST", "/v1/harness-executions", {"binding_id": world.ids["harness"], **SCOPE})
    return Ask(f"/v1/harness-executions/{begun}:cancel", "project")


def compaction(world: World) -> Ask:
    body = {"chain_id": world.ids["chain_id"], "compactor": {"binding_id": world.ids["compactor"]}}
    return Ask("/v1/compactions", "project", {**body, "target": {"max_input_tokens": 1000}})


def once_granted(path: str, body: Any = None) -> Callable[[World], Ask]:
    """To a plugin that may run: another request may have taken its grant away."""

    def ask(world: World) -> Ask:
        world.ask("bootstrap", "POST", "/api/v1/plugins/p:grant", json=GRANT)
        return Ask(path, None, body)

    return ask


def approval(world: World) -> Ask:
    seen = world.ask("bootstrap", "POST", "/api/v1/plugins/srv:look").json()
    return Ask("/api/v1/plugins/srv:approve", None, {"digest": seen["digest"]})


def with_params(path: str, **params: str) -> Callable[[World], Ask]:
    return lambda world: Ask(path, None, None, {"params": params})


def forgetting(world: World) -> Ask:
    kept = world.ask("bootstrap", "POST", "/api/v1/memories", json=MEMORY).json()
    return Ask(f"/api/v1/memories/{kept['id']}", None, None, {"params": {"agent_id": MEMORY["agent_id"]}})


MEMORY = {"agent_id": "a", "content": "the matrix was asked"}
GRANT = {"capabilities": ["tool.execute"]}
BINDING = {"package_id": "acme/p", "package_version": "1.0.0", "export_id": "t", "scope": SCOPE, "status": "draft"}
KEY = {**SCOPE, "name": "of the matrix", "role": "viewer"}

ASKS: dict[str, Callable[[World], Ask]] = {
    "GET /livez": at("/livez"),
    "GET /readyz": at("/readyz"),
    "GET /metrics": at("/metrics"),
    "POST /v1/orgs": at("/v1/orgs", body={"name": "Another"}),
    "GET /v1/orgs": at("/v1/orgs"),
    "GET /v1/orgs/{org_id}": at("/v1/orgs/{org_id}", "org"),
    "PATCH /v1/orgs/{org_id}": at("/v1/orgs/{org_id}", "org", {"name": "Ours"}),
    "POST /v1/orgs/{org_id}/projects": at("/v1/orgs/{org_id}/projects", "org", {"name": "P"}),
    "GET /v1/orgs/{org_id}/projects": at("/v1/orgs/{org_id}/projects", "org"),
    "GET /v1/orgs/{org_id}/projects/{project_id}": at("/v1/orgs/{org_id}/projects/{project_id}", "project"),
    "PATCH /v1/orgs/{org_id}/projects/{project_id}": at(
        "/v1/orgs/{org_id}/projects/{project_id}", "project", {"name": "P"}
    ),
    "GET /v1/audit": at("/v1/audit"),
    "GET /v1/audit/verification": at("/v1/audit/verification"),
    "POST /v1/api-keys": at("/v1/api-keys", "project", KEY),
    "GET /v1/api-keys": at("/v1/api-keys"),
    "GET /v1/api-keys/{key_id}": at("/v1/api-keys/{key_id}", "project"),
    "DELETE /v1/api-keys/{key_id}": at("/v1/api-keys/{key_id}", "project"),
    "POST /v1/plugin-packages": upload,
    "GET /v1/plugin-packages": at("/v1/plugin-packages"),
    "GET /v1/plugin-packages/{package}": at("/v1/plugin-packages/{package}", "org"),
    "DELETE /v1/plugin-packages/{package}": package_deletion,
    "GET /v1/plugin-packages/{package}/logs": at("/v1/plugin-packages/{package}/logs", "org"),
    "POST /v1/plugin-bindings": at("/v1/plugin-bindings", "project", BINDING),
    "GET /v1/plugin-bindings": at("/v1/plugin-bindings"),
    "GET /v1/plugin-bindings/{binding_id}": at("/v1/plugin-bindings/{binding_id}", "project"),
    "PATCH /v1/plugin-bindings/{binding_id}": at("/v1/plugin-bindings/{binding_id}", "project", {"config": {}}),
    "DELETE /v1/plugin-bindings/{binding_id}": binding_deletion,
    "POST /v1/plugin-bindings/{binding_id}:validate": at("/v1/plugin-bindings/{binding_id}:validate", "project"),
    "POST /v1/plugin-bindings/{binding_id}:test-delivery": at("/v1/plugin-bindings/{hook}:test-delivery", "project"),
    "GET /v1/plugin-harnesses": at("/v1/plugin-harnesses"),
    "GET /v1/plugin-tools": at("/v1/plugin-tools"),
    "GET /v1/plugin-hooks": at("/v1/plugin-hooks"),
    "GET /v1/plugin-compactors": at("/v1/plugin-compactors"),
    "GET /v1/trusted-publishers": at("/v1/trusted-publishers"),
    "POST /v1/trusted-publishers": trust_addition,
    "DELETE /v1/trusted-publishers/{key_id}": trust_removal,
    "PUT /v1/secrets/{name}": at("/v1/secrets/{name}", "project", SECRET),
    "GET /v1/secrets": at("/v1/secrets"),
    "DELETE /v1/secrets/{name}": deletion,
    "POST /v1/secrets:rotate-key": at("/v1/secrets:rotate-key"),
    "POST /v1/plugin-invocations": about("/v1/plugin-invocations", binding_id="{binding_id}"),
    "GET /v1/plugin-invocations": at("/v1/plugin-invocations"),
    "GET /v1/plugin-invocations:events": at("/v1/plugin-invocations:events"),
    "GET /v1/plugin-invocations/{invocation_id}": at("/v1/plugin-invocations/{invocation_id}", "project"),
    "GET /v1/plugin-invocations/{invocation_id}/events": at("/v1/plugin-invocations/{invocation_id}/events", "project"),
    "GET /v1/plugin-invocations/{invocation_id}/artifacts/{asset_id}": download,
    "POST /v1/plugin-invocations/{invocation_id}:cancel": cancellation,
    "GET /v1/plugin-marketplace": at("/v1/plugin-marketplace"),
    "GET /v1/plugin-marketplace/{card_id}": at("/v1/plugin-marketplace/{card_id}"),
    "POST /v1/plugin-marketplace": publication,
    "DELETE /v1/plugin-marketplace/{card_id}": unpublication,
    "POST /v1/plugin-marketplace/{card_id}:install": at(
        "/v1/plugin-marketplace/{card_id}:install", "project", {"scope": SCOPE}
    ),
    "POST /v1/sessions": at("/v1/sessions", "project", SCOPE),
    "GET /v1/sessions": at("/v1/sessions"),
    "GET /v1/sessions/{session_id}": at("/v1/sessions/{session_id}", "project"),
    "PATCH /v1/sessions/{session_id}": at("/v1/sessions/{session_id}", "project", {"metadata": {}}),
    "GET /v1/sessions/{session_id}/chains": at("/v1/sessions/{session_id}/chains", "project"),
    "POST /v1/sessions/{session_id}:branch": at("/v1/sessions/{session_id}:branch", "project", {}),
    "POST /v1/chains": about("/v1/chains", session_id="{session_id}"),
    "GET /v1/chains": at("/v1/chains"),
    "GET /v1/chains/{chain_id}": at("/v1/chains/{chain_id}", "project"),
    "GET /v1/chains/{chain_id}/context": at("/v1/chains/{chain_id}/context", "project"),
    "PATCH /v1/chains/{chain_id}": at("/v1/chains/{chain_id}", "project", {"metadata": {}}),
    "POST /v1/chains/{chain_id}:fork": at("/v1/chains/{chain_id}:fork", "project", {}),
    "POST /v1/chains/{chain_id}/runs": in_new_chain("/v1/chains/{chain_id}/runs", blocks=HELLO),
    "POST /v1/chains/{chain_id}/runs:stream": in_new_chain("/v1/chains/{chain_id}/runs:stream", blocks=HELLO),
    "POST /v1/runs": in_new_chain("/v1/runs", blocks=HELLO),
    "GET /v1/chains/{chain_id}/runs": at("/v1/chains/{chain_id}/runs", "project"),
    "GET /v1/runs": at("/v1/runs"),
    "GET /v1/runs/{run_id}": at("/v1/runs/{run_id}", "project"),
    "GET /v1/runs/{run_id}/events": at("/v1/runs/{run_id}/events", "project"),
    "GET /v1/runs/{run_id}/timeline": at("/v1/runs/{run_id}/timeline", "project"),
    "GET /v1/runs/{run_id}/effective-request": at("/v1/runs/{run_id}/effective-request", "project"),
    "POST /v1/runs/{run_id}:cancel": at("/v1/runs/{run_id}:cancel", "project"),
    "POST /v1/runs/{run_id}:regenerate": at("/v1/runs/{run_id}:regenerate", "project", {}),
    "POST /v1/compactions": compaction,
    "GET /v1/compactions": at("/v1/compactions"),
    "GET /v1/compactions/{compaction_id}": at("/v1/compactions/{compaction_id}", "project"),
    "POST /v1/harness-executions": about("/v1/harness-executions", binding_id="{harness}", chain_id="{chain_id}"),
    "GET /v1/harness-executions": at("/v1/harness-executions"),
    "GET /v1/harness-executions/{execution_id}": at("/v1/harness-executions/{execution_id}", "project"),
    "POST /v1/harness-executions/{execution_id}:cancel": abandonment,
    "POST /v1/harness-executions/{execution_id}:resume": once_ended("/v1/harness-executions/{execution_id}", "resume"),
    "GET /v1/events": at("/v1/events"),
    "GET /v1/hook-deliveries": at("/v1/hook-deliveries"),
    "GET /v1/hook-deliveries/{delivery_id}": at("/v1/hook-deliveries/{delivery_id}", "project"),
    "POST /v1/hook-deliveries/{delivery_id}:replay": once_ended("/v1/hook-deliveries/{delivery_id}", "replay"),
    "GET /api/v1/plugins": at("/api/v1/plugins"),
    "GET /api/v1/exports": at("/api/v1/exports"),
    "GET /api/v1/plugins/{plugin_id:path}/logs": at("/api/v1/plugins/p/logs"),
    "GET /api/v1/plugins/{plugin_id:path}": at("/api/v1/plugins/p"),
    "POST /api/v1/plugins/{plugin_id:path}:start": once_granted("/api/v1/plugins/p:start"),
    "POST /api/v1/plugins/{plugin_id:path}:stop": at("/api/v1/plugins/p:stop"),
    "POST /api/v1/plugins/{plugin_id:path}:restart": once_granted("/api/v1/plugins/p:restart"),
    "POST /api/v1/plugins/{plugin_id:path}:reload": once_granted("/api/v1/plugins/p:reload"),
    "POST /api/v1/plugins/{plugin_id:path}:grant": at("/api/v1/plugins/p:grant", body=GRANT),
    "POST /api/v1/plugins/{plugin_id:path}:revoke": once_granted("/api/v1/plugins/p:revoke", GRANT),
    "POST /api/v1/plugins/{plugin_id:path}:look": at("/api/v1/plugins/srv:look"),
    "POST /api/v1/plugins/{plugin_id:path}:approve": approval,
    "GET /api/v1/nodes": at("/api/v1/nodes"),
    "POST /api/v1/nodes/{node}:drain": at("/api/v1/nodes/n1:drain"),
    "POST /api/v1/nodes/{node}:undrain": at("/api/v1/nodes/n1:undrain"),
    "POST /api/v1/records:prune": at("/api/v1/records:prune", body={"dry_run": True}),
    "POST /api/v1/dashboard-links": at("/api/v1/dashboard-links"),
    "POST /api/v1/calls": at("/api/v1/calls", body={"export": "p/t", "input": {}}),
    "GET /api/v1/calls": at("/api/v1/calls"),
    "GET /api/v1/events": at("/api/v1/events"),
    "POST /api/v1/events": at("/api/v1/events", body={"topic": "matrix.asked", "payload": {}}),
    "POST /api/v1/hooks": at("/api/v1/hooks", body={"hook": "before_message"}),
    "POST /api/v1/compactions": at("/api/v1/compactions", body={"messages": []}),
    "POST /api/v1/memories": at("/api/v1/memories", body=MEMORY),
    "GET /api/v1/memories": with_params("/api/v1/memories", agent_id="a"),
    "DELETE /api/v1/memories": with_params("/api/v1/memories", agent_id="b"),
    "DELETE /api/v1/memories/{memory_id}": forgetting,
    "GET /api/v1/screens": at("/api/v1/screens"),
    "POST /api/v1/screens:render": at("/api/v1/screens:render", body={"screen": "panel/main"}),
    "POST /api/v1/screens:input": at(
        "/api/v1/screens:input", body={"screen": "panel/main", "events": [{"key": {"code": {"type": "enter"}}}]}
    ),
    "POST /api/v1/screens:act": at("/api/v1/screens:act", body={"plugin": "panel", "action": "open"}),
    "POST /api/v1/command-lines:run": at("/api/v1/command-lines:run", body={"namespace": "panel"}),
}


@dataclass(frozen=True)
class Needs:
    """What a route says it needs."""

    all_of: tuple[str, ...]
    one_of: tuple[str, ...]

    @property
    def everything(self) -> list[str]:
        return [*self.all_of, *self.one_of]

    def named(self, has: Callable[[str], bool]) -> tuple[str, ...]:
        """What whoever has only this is told to need; empty: it is enough."""
        if not all(map(has, self.all_of)):
            return self.all_of
        return self.one_of if self.one_of and not any(map(has, self.one_of)) else ()


def needs_of(name: str) -> Needs:
    written = ROUTES[name].openapi_extra or {}
    return Needs(tuple(written.get(NEEDS, ())), tuple(written.get(NEEDS_ONE, ())))


def person_has(who: str) -> Callable[[str], bool]:
    def has(need: str) -> bool:
        if need == "host":
            return who == "bootstrap"
        least = need if need in ROLES else "viewer" if need.endswith(":read") else "operator"
        return ROLES.index(PEOPLE[who]) >= ROLES.index(least)

    return has


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_at(tmp_path_factory.mktemp("world")) as world:
        yield world


def test_every_route_says_what_it_needs_and_stands_in_the_matrix() -> None:
    silent = {name for name in ROUTES if not needs_of(name).everything}
    assert silent == OPEN
    assert set(ASKS) == set(ROUTES)


def asked(world: World, name: str, who: str, ask: Ask) -> httpx2.Response:
    documented = world.openapi["paths"][ROUTES[name].path_format][name.split()[0].lower()]["responses"]
    stream = any(MEDIA_TYPE in answer.get("content", {}) for answer in documented.values())
    more = {"json": ask.body} if ask.body is not None else {}
    return world.ask(who, name.split()[0], ask.path, ending=stream, **more, **ask.more)


def refused(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    details: dict[str, Any] = answer.json()["error"]["details"]
    return details


def granted(answer: httpx2.Response) -> None:
    is_without_cluster = answer.status_code == 404 and answer.json()["error"]["code"] == "node.not_found"
    assert answer.is_success or is_without_cluster, answer.text


@requirement("vai:control-authorisation-matrix")
@pytest.mark.parametrize("name", one_of_each(sorted(set(ROUTES) - OPEN), needs_of))
def test_a_dead_key_or_none_gets_nothing(name: str, world: World) -> None:
    ask = ASKS[name](world)
    for who, code in DEAD.items():
        answer = asked(world, name, who, ask)
        refused(answer, 401, code)
        assert answer.headers["www-authenticate"] == "Bearer"
    granted(asked(world, name, "bootstrap", ask))


@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_is_open_is_open_to_all(name: str, world: World) -> None:
    for who in world.tokens:
        granted(asked(world, name, who, ASKS[name](world)))


@requirement("vai:control-authorisation-matrix")
@pytest.mark.parametrize("name", one_of_each(sorted(set(ROUTES) - OPEN), needs_of))
def test_a_role_is_enough_or_told_what_would_be(name: str, world: World) -> None:
    for who in ("viewer", "operator", "admin", "bootstrap"):
        missing = needs_of(name).named(person_has(who))
        answer = asked(world, name, who, ASKS[name](world))
        if missing:
            assert refused(answer, 403, "auth.role_denied") == {"required": list(missing)}
        elif name in OPERATOR_ALONE and who != "bootstrap":
            assert refused(answer, 403, "auth.role_denied") == {"required": ["operator of all"]}
        else:
            granted(answer)


@requirement("vai:control-authorisation-matrix", "vai:control-scopes")
@pytest.mark.parametrize("name", one_of_each(sorted(set(ROUTES) - OPEN), needs_of))
def test_a_plugin_gets_through_with_the_scopes_and_with_nothing_else(name: str, world: World) -> None:
    needs = needs_of(name)
    scopes = [need for need in needs.everything if ":" in need]
    world.tokens["exact"] = world.do(world.delegate(scopes))
    world.tokens["others"] = world.do(world.delegate([scope for scope in EVERY_SCOPE if scope not in scopes]))
    for who, has in (("scopeless", []), ("others", []), ("exact", scopes), ("delegate", EVERY_SCOPE)):
        missing = needs.named(has.__contains__)
        answer = asked(world, name, who, ASKS[name](world))
        if missing:
            assert refused(answer, 403, "auth.scope_denied") == {"required": list(missing)}
            assert any(need in answer.json()["error"]["message"] for need in missing)
        elif name in OWN_RUNS and who == "exact":
            assert refused(answer, 403, "auth.scope_denied") == {"required": ["runs:read"]}
        elif name == "POST /v1/runs/{run_id}:cancel":
            refused(answer, 404, "run.not_found")
        elif name == "POST /v1/sessions":
            refused(answer, 422, "session.not_in_lineage")
        else:
            granted(answer)


@requirement("vai:control-authorisation-matrix")
@pytest.mark.parametrize("name", sorted(OWN_RUNS))
def test_a_plugin_reaches_a_run_that_it_made_itself(name: str, world: World) -> None:
    world.tokens["writer"] = world.do(world.delegate(["runs:write"]))
    made = asked(world, "POST /v1/runs", "writer", ASKS["POST /v1/runs"](world))
    granted(made)
    own = f"/v1/runs/{made.json()['id']}"
    while world.ask("admin", "GET", own).json()["completed_at"] is None:
        pass
    body: dict[str, Any] = {"json": {}} if name.endswith("regenerate") else {}
    granted(world.ask("writer", "POST", f"{own}:{name.rpartition(':')[2]}", **body))


@requirement("vai:control-authorisation-matrix", "vai:control-tenancy")
@pytest.mark.parametrize("name", one_of_each(sorted(set(ROUTES) - OPEN), needs_of))
def test_what_is_of_another_tenant_is_not_there(name: str, world: World) -> None:
    for who, hidden in (("stranger", ("org", "project")), ("neighbour", ("project",)), ("project", ())):
        ask = ASKS[name](world)
        answer = asked(world, name, who, ask)
        if needs_of(name).named(person_has(who)) or name in OPERATOR_ALONE:
            refused(answer, 403, "auth.role_denied")
        elif ask.of in hidden:
            assert answer.status_code == 404, answer.text
            assert "of another" not in answer.text
        elif who in PROJECT_KEYS and name in WHOLE_ORG_ALONE:
            assert refused(answer, 403, "auth.role_denied") == {"required": ["org key"]}
        else:
            granted(answer)
            assert_blind(world, who, answer.text)
    granted(asked(world, name, "bootstrap", ASKS[name](world)))


def assert_blind(world: World, who: str, text: str) -> None:
    """Nothing that others have is in this answer."""
    foreign = {"stranger": ("org_1", "proj_1", "proj_3"), "neighbour": ("org_2", "proj_1"), "project": ("org_2",)}
    assert [id for id in foreign[who] if f'"{id}"' in text] == []
