"""The page that calls an export: a form made from its schema, or JSON."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.model.errors import Failure
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.authentication import Visit, require_session
from plugbay.server.dashboard.views import Capability, call_outcome, grantable
from plugbay.server.domain.errors import not_found
from plugbay.server.domain.principal import HOST


@require_session(HOST)
async def show_export(visit: Visit) -> Response:
    return _export_page(visit)


@require_session(HOST)
async def call_export(visit: Visit) -> Response:
    """Call an export with the submitted input and show the result."""
    full_name, schema = _export(visit)
    typed = {name: values[0] for name, values in visit.form.items()}
    fields = None if visit.query("as") == "json" else forms.fields_of(schema)
    try:
        timeout = _timeout(visit.field("timeout"))
        wanted = forms.input_of_json(typed.get("json", "")) if fields is None else forms.input_of(fields, typed)
    except forms.Invalid as error:
        return _export_page(visit, 400, error)
    result = await visit.gateway.host.attempt(full_name, wanted, timeout=timeout)
    return _export_page(visit, answer=call_outcome(result), grants=_grants(visit, full_name, result.failure))


def _grants(visit: Visit, full_name: str, failure: Failure | None) -> tuple[Capability, ...]:
    """The grants that a refused call needs."""
    if failure is None:
        return ()
    plugin = visit.dashboard.loader.plugin(full_name.rpartition("/")[0])
    needs = visit.gateway.host.exports()[full_name].capabilities
    return grantable(plugin, needs, {"code": failure.code, "detail": failure.detail})


def _export(visit: Visit) -> tuple[str, object]:
    """The requested export by full name, and its input schema; raises `not_found`."""
    full_name = visit.query("export")
    found = visit.gateway.host.exports().get(full_name)
    if found is None:
        raise not_found("export", full_name)
    return full_name, found.input_schema


def _timeout(text: str) -> float | None:
    """The timeout in seconds; None: the manifest's. Raises `Invalid`."""
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_CALL:
        raise forms.Invalid(f"the timeout must be between 0 and {LONGEST_CALL:g} seconds")
    return seconds


def _export_page(
    visit: Visit,
    status: int = 200,
    error: forms.Invalid | None = None,
    answer: object = None,
    grants: tuple[Capability, ...] = (),
) -> Response:
    """The form of an export, with submitted values and the result of the call."""
    full_name, schema = _export(visit)
    export = visit.gateway.host.exports()[full_name]
    fields = forms.fields_of(schema)
    as_json = fields is None or visit.query("as") == "json"
    typed = {name: values[0] for name, values in visit.form.items()}
    return visit.page(
        "export.html",
        status,
        export=export,
        full_name=full_name,
        plugin_id=full_name.rpartition("/")[0],
        has_fields=fields is not None,
        as_json=as_json,
        fields=error.fields if error and error.fields else forms.refill(fields or (), typed),
        json=typed.get("json", forms.example(schema)),
        timeout=typed.get("timeout", ""),
        problem="" if error is None else error.problem,
        answer=answer,
        grants=grants,
    )
