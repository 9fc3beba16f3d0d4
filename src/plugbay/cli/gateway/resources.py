"""The groups of the control plane's command line: which verb sends which request of the REST API.

Arguments and options of each verb come from `routes.json`, so they cannot differ from the API. A route of the API that
has no verb here fails a test.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A command of a group."""

    route: str
    columns: str = ""
    """Fields that a list of other records shows."""
    work: str = ""
    """The route of the work that goes on after the answer: `--wait` polls it until the work has ended."""


class Resource(NamedTuple):
    """A group of commands for one kind of record."""

    help: str
    columns: str
    """Fields that a list shows, in this order; the last one takes the rest of the line."""
    verbs: dict[str, Verb]
    examples: str


RUN = "GET /v1/runs/{run_id}"
COMPACTION = "GET /v1/compactions/{compaction_id}"
EXECUTION = "GET /v1/harness-executions/{execution_id}"
DELIVERY = "GET /v1/hook-deliveries/{delivery_id}"
INVOCATION = "GET /v1/plugin-invocations/{invocation_id}"


class Source(NamedTuple):
    """The records whose ids complete a parameter: those of a group, with the field of the id."""

    group: str
    id: str = "id"
    about: str = ""
    """The field that describes a record; the last column of the group unless given."""


IDS = {
    "org_id": Source("org"),
    "project_id": Source("project"),
    "key_id": Source("key"),
    "package": Source("package", about="package_id"),
    "package_id": Source("package", "package_id", "version"),
    "binding_id": Source("binding", "binding_id"),
    "invocation_id": Source("invocation", "invocation_id"),
    "session_id": Source("session"),
    "chain_id": Source("chain", about="status"),
    "run_id": Source("runs"),
    "parent_run_id": Source("runs"),
    "compaction_id": Source("compaction", about="status"),
    "execution_id": Source("harness", about="status"),
    "delivery_id": Source("delivery", about="status"),
    "card_id": Source("marketplace"),
}
"""Sources of completion by the name of a parameter."""

OWN_IDS = {
    ("publisher", "key_id"): Source("publisher", "key_id", "publisher"),
    ("secret", "name"): Source("secret", "name"),
}
"""Sources of parameters that mean something else in one group."""

CHAINS = "id session_id status chain_version created_at"
RUNS = "id chain_id status created_at model"

RESOURCES = {
    "org": Resource(
        "Orgs: the tenants of a server.",
        "id created_at name",
        {
            "list": Verb("GET /v1/orgs"),
            "show": Verb("GET /v1/orgs/{org_id}"),
            "create": Verb("POST /v1/orgs"),
            "update": Verb("PATCH /v1/orgs/{org_id}"),
        },
        examples="""\
Examples
plugbay org create "Tea shop" --id tea
plugbay org list --json""",
    ),
    "project": Resource(
        "Projects of an org.",
        "id org_id created_at name",
        {
            "list": Verb("GET /v1/orgs/{org_id}/projects"),
            "show": Verb("GET /v1/orgs/{org_id}/projects/{project_id}"),
            "create": Verb("POST /v1/orgs/{org_id}/projects"),
            "update": Verb("PATCH /v1/orgs/{org_id}/projects/{project_id}"),
        },
        examples="""\
Examples
plugbay project create tea "Autumn menu" --id autumn
plugbay project list tea""",
    ),
    "key": Resource(
        "API keys of an org.",
        "id org_id role created_at revoked_at name",
        {
            "list": Verb("GET /v1/api-keys"),
            "show": Verb("GET /v1/api-keys/{key_id}"),
            "create": Verb("POST /v1/api-keys"),
            "revoke": Verb("DELETE /v1/api-keys/{key_id}"),
        },
        examples="""\
Examples
plugbay key create --org tea --name ci --role operator
plugbay key revoke key_1""",
    ),
    "package": Resource(
        "Packages that a server has, with their verified signatures.",
        "package_id version status org_id digest",
        {
            "list": Verb("GET /v1/plugin-packages"),
            "show": Verb("GET /v1/plugin-packages/{package}"),
            "add": Verb("POST /v1/plugin-packages"),
            "delete": Verb("DELETE /v1/plugin-packages/{package}"),
            "logs": Verb("GET /v1/plugin-packages/{package}/logs", "at source level text"),
        },
        examples="""\
Examples
plugbay package add weather-1.0.0.tar.gz
plugbay package add oci://registry.example/acme/weather@sha256:…""",
    ),
    "publisher": Resource(
        "Publishers whose signatures the server trusts, for the operator of all orgs.",
        "key_id publisher revoked not_after packages",
        {
            "list": Verb("GET /v1/trusted-publishers"),
            "trust": Verb("POST /v1/trusted-publishers"),
            "revoke": Verb("DELETE /v1/trusted-publishers/{key_id}"),
        },
        examples="""\
Examples
plugbay publisher trust --public-key @acme.pub --publisher acme
plugbay publisher revoke 5f0c1d2e""",
    ),
    "export": Resource(
        "Exports of the packages that an org can bind.",
        "package_id package_version export_id display_name",
        {
            "tools": Verb("GET /v1/plugin-tools"),
            "hooks": Verb("GET /v1/plugin-hooks"),
            "compactors": Verb("GET /v1/plugin-compactors"),
            "harnesses": Verb("GET /v1/plugin-harnesses"),
        },
        examples="""\
Examples
plugbay export tools --org tea""",
    ),
    "binding": Resource(
        "Bindings: exports that an org or a project uses, with their configuration, secrets and policy.",
        "binding_id export_kind status scope.org_id scope.project_id package_id package_version export_id",
        {
            "list": Verb("GET /v1/plugin-bindings"),
            "show": Verb("GET /v1/plugin-bindings/{binding_id}"),
            "create": Verb("POST /v1/plugin-bindings"),
            "update": Verb("PATCH /v1/plugin-bindings/{binding_id}"),
            "validate": Verb("POST /v1/plugin-bindings/{binding_id}:validate"),
            "test": Verb("POST /v1/plugin-bindings/{binding_id}:test-delivery", work=DELIVERY),
            "delete": Verb("DELETE /v1/plugin-bindings/{binding_id}"),
        },
        examples="""\
Examples
plugbay binding create --package acme/devkit --package-version 1.0.0 --export search --org tea --status active
plugbay binding update bind_1 --config units=metric --secrets token=secret://tea/token
plugbay binding update bind_1 --package-version 1.1.0 --dry-run
plugbay binding validate bind_1""",
    ),
    "secret": Resource(
        "Secrets of an org or a project. Values are read from standard input and never shown.",
        "name org_id project_id version updated_at",
        {
            "list": Verb("GET /v1/secrets"),
            "set": Verb("PUT /v1/secrets/{name}"),
            "delete": Verb("DELETE /v1/secrets/{name}"),
            "rotate-key": Verb("POST /v1/secrets:rotate-key"),
        },
        examples="""\
Examples
plugbay secret set token --org tea < token.txt
plugbay secret list --org tea""",
    ),
    "invocation": Resource(
        "Invocations of bound exports.",
        "invocation_id status export_kind started_at export_id",
        {
            "list": Verb("GET /v1/plugin-invocations"),
            "show": Verb(INVOCATION),
            "create": Verb("POST /v1/plugin-invocations"),
            "cancel": Verb("POST /v1/plugin-invocations/{invocation_id}:cancel", work=INVOCATION),
            "artifact": Verb("GET /v1/plugin-invocations/{invocation_id}/artifacts/{asset_id}"),
            "follow": Verb("GET /v1/plugin-invocations/{invocation_id}/events"),
            "events": Verb("GET /v1/plugin-invocations:events"),
        },
        examples="""\
Examples
plugbay invocation create --binding bind_1 --input city=Lima
plugbay invocation follow inv_1 --json""",
    ),
    "session": Resource(
        "Sessions: conversations, each with one or more chains.",
        "id org_id project_id created_at external_session_id",
        {
            "list": Verb("GET /v1/sessions"),
            "show": Verb("GET /v1/sessions/{session_id}"),
            "create": Verb("POST /v1/sessions"),
            "update": Verb("PATCH /v1/sessions/{session_id}"),
            "branch": Verb("POST /v1/sessions/{session_id}:branch"),
            "chains": Verb("GET /v1/sessions/{session_id}/chains", CHAINS),
        },
        examples="""\
Examples
plugbay session create --org tea
plugbay session branch sess_1""",
    ),
    "chain": Resource(
        "Chains: the blocks of a conversation, which never change.",
        CHAINS,
        {
            "list": Verb("GET /v1/chains"),
            "show": Verb("GET /v1/chains/{chain_id}"),
            "create": Verb("POST /v1/chains"),
            "update": Verb("PATCH /v1/chains/{chain_id}"),
            "context": Verb("GET /v1/chains/{chain_id}/context"),
            "fork": Verb("POST /v1/chains/{chain_id}:fork"),
            "runs": Verb("GET /v1/chains/{chain_id}/runs", RUNS),
            "run": Verb("POST /v1/chains/{chain_id}/runs", work=RUN),
            "stream": Verb("POST /v1/chains/{chain_id}/runs:stream"),
        },
        examples="""\
Examples
plugbay chain create sess_1 --defaults-model local/any
plugbay chain run chain_1 --blocks "Which tea is left?" --wait""",
    ),
    "runs": Resource(
        "Runs: the answers of a model on a chain, with the tools it called.",
        RUNS,
        {
            "list": Verb("GET /v1/runs"),
            "show": Verb(RUN),
            "create": Verb("POST /v1/runs", work=RUN),
            "cancel": Verb("POST /v1/runs/{run_id}:cancel", work=RUN),
            "regenerate": Verb("POST /v1/runs/{run_id}:regenerate", work=RUN),
            "timeline": Verb("GET /v1/runs/{run_id}/timeline"),
            "follow": Verb("GET /v1/runs/{run_id}/events"),
            "request": Verb("GET /v1/runs/{run_id}/effective-request"),
        },
        examples="""\
Examples
plugbay runs create --session sess_1 --model local/any --blocks "Which tea is left?" --wait
plugbay runs timeline run_1""",
    ),
    "compaction": Resource(
        "Compactions: shorter chains made from long ones.",
        "id chain_id status created_at new_chain_id",
        {
            "list": Verb("GET /v1/compactions"),
            "show": Verb(COMPACTION),
            "create": Verb("POST /v1/compactions", work=COMPACTION),
        },
        examples="""\
Examples
plugbay compaction create chain_1 --target-max-input-tokens 4000 --wait""",
    ),
    "harness": Resource(
        "Executions of harnesses.",
        "id binding_id status created_at",
        {
            "list": Verb("GET /v1/harness-executions"),
            "show": Verb(EXECUTION),
            "create": Verb("POST /v1/harness-executions", work=EXECUTION),
            "cancel": Verb("POST /v1/harness-executions/{execution_id}:cancel", work=EXECUTION),
            "resume": Verb("POST /v1/harness-executions/{execution_id}:resume", work=EXECUTION),
        },
        examples="""\
Examples
plugbay harness create bind_1 --trigger-input "Take stock" --policy-max-child-runs 4 --wait
plugbay harness resume exec_1 --wait""",
    ),
    "delivery": Resource(
        "Deliveries of events to hooks, with every attempt.",
        "id binding_id status attempts created_at error_code",
        {
            "list": Verb("GET /v1/hook-deliveries"),
            "show": Verb(DELIVERY),
            "replay": Verb("POST /v1/hook-deliveries/{delivery_id}:replay", work=DELIVERY),
            "events": Verb("GET /v1/events", "id type occurred_at session_id"),
        },
        examples="""\
Examples
plugbay delivery list --status dead_letter
plugbay delivery replay del_1 --wait""",
    ),
    "marketplace": Resource(
        "Cards of the marketplace: packages that can be installed with one request.",
        "id kind status publisher.id name",
        {
            "list": Verb("GET /v1/plugin-marketplace"),
            "show": Verb("GET /v1/plugin-marketplace/{card_id}"),
            "install": Verb("POST /v1/plugin-marketplace/{card_id}:install"),
            "publish": Verb("POST /v1/plugin-marketplace"),
            "remove": Verb("DELETE /v1/plugin-marketplace/{card_id}"),
        },
        examples="""\
Examples
plugbay marketplace list
plugbay marketplace install thread-weave --org tea""",
    ),
    "audit": Resource(
        "The audit log.",
        "at action actor_kind actor_id subject_kind subject_id",
        {"list": Verb("GET /v1/audit"), "verify": Verb("GET /v1/audit/verification")},
        examples="""\
Examples
plugbay audit list --action binding.create --limit 10
plugbay audit verify --json
plugbay audit verify --data DIR --head ORG:POSITION:HASH""",
    ),
}
