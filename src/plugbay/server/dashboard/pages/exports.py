"""Pages that call an export: a form made from its schema, or JSON; and a call that runs.

An answer that comes at once is on the page of the form. A longer call has a page of its own, which follows it.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from starlette.responses import Response

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.model.errors import Failure
from plugbay.model.spec import Export
from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.authentication import Visit, require_session
from plugbay.server.dashboard.live import TryFeed, check_stream_limit, follow
from plugbay.server.dashboard.tries import Try
from plugbay.server.dashboard.views.calls import call_outcome, try_view
from plugbay.server.dashboard.views.plugins import Capability, grantable
from plugbay.server.domain.errors import not_found
from plugbay.server.domain.principal import HOST

QUICK_SECONDS = 1.0
"""Seconds to wait for an answer before the call gets a page of its own."""

SHOWN_TRIES = 10
"""Earlier calls on the page of an export."""


@require_session(HOST)
async def show_export(visit: Visit) -> Response:
    """The form, empty or with the kept input of an earlier call."""
    export = _export(visit)
    again = visit.query("again")
    if not again:
        return _export_page(visit, export)
    kept = visit.dashboard.tries.get(visit.session, again).kept
    return _filled_page(visit, export, kept)


@require_session(HOST)
async def call_export(visit: Visit) -> Response:
    """Call an export with the submitted input; or show the input as JSON, or as a form."""
    export, full_name = _export(visit), visit.query("export")
    typed = _typed(visit)
    fields = None if visit.query("as") == "json" else forms.fields_of(export.input_schema)
    try:
        if visit.field("switch") == "json" and fields is not None:
            draft = json.dumps(forms.draft_of(fields, typed), ensure_ascii=False, indent=2)
            return _export_page(visit, export, as_json=True, text=draft)
        if visit.field("switch") == "form":
            return _filled_page(visit, export, typed.get("json", ""))
        timeout = _timeout(visit.field("timeout"))
        wanted = forms.input_of_json(typed.get("json", "")) if fields is None else forms.input_of(fields, typed)
    except forms.Invalid as error:
        return _export_page(visit, export, 400, error)
    tries = visit.dashboard.tries
    made = tries.begin(visit.session, full_name, wanted, timeout, keep=bool(visit.field("keep")))
    await tries.wait(made, QUICK_SECONDS)
    if made.result is None:
        return visit.redirect(f"/tries/{made.id}")
    grants = _grants(visit, full_name, made.result.failure)
    return _export_page(visit, export, answer=call_outcome(made.result), grants=grants)


def _filled_page(visit: Visit, export: Export, text: str) -> Response:
    """The form with the values of JSON; JSON stays where the form cannot express it."""
    fields = forms.fields_of(export.input_schema)
    try:
        if fields is None:
            raise forms.Invalid("")
        return _export_page(visit, export, as_json=False, fields=forms.fill(fields, forms.input_of_json(text)))
    except forms.Invalid as error:
        return _export_page(visit, export, 400 if error.problem else 200, error, as_json=True, text=text)


# A call that runs.


@require_session(HOST)
async def show_try(visit: Visit) -> Response:
    made = _try(visit)
    return visit.page(
        "try.html",
        made=made,
        view=try_view(made),
        plugin_id=made.export.rpartition("/")[0],
        full_name=made.export,
        grants=_grants(visit, made.export, None if made.result is None else made.result.failure),
        pieces=list(made.pieces),
        skipped=made.received - len(made.pieces),
    )


@require_session(HOST, live=True)
async def follow_try(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    return event_stream(visit.request, follow(visit, TryFeed(_try(visit))))


@require_session(HOST)
async def cancel_try(visit: Visit) -> Response:
    made = _try(visit)
    visit.dashboard.tries.cancel(made)
    await visit.dashboard.tries.wait(made, QUICK_SECONDS)
    return visit.redirect(f"/tries/{made.id}")


def _try(visit: Visit) -> Try:
    return visit.dashboard.tries.get(visit.session, visit.request.path_params["try_id"])


# Parts.


def _typed(visit: Visit) -> dict[str, str]:
    return {name: values[0] for name, values in visit.form.items()}


def _export(visit: Visit) -> Export:
    """The requested export; raises `not_found`."""
    full_name = visit.query("export")
    found = visit.gateway.host.exports().get(full_name)
    if found is None:
        raise not_found("export", full_name)
    return found


def _grants(visit: Visit, full_name: str, failure: Failure | None) -> tuple[Capability, ...]:
    """The grants that a refused call needs."""
    export = visit.gateway.host.exports().get(full_name)
    if failure is None or export is None:
        return ()
    plugin = visit.dashboard.loader.plugin(full_name.rpartition("/")[0])
    return grantable(plugin, export.capabilities, {"code": failure.code, "detail": failure.detail})


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
    export: Export,
    status: int = 200,
    error: forms.Invalid | None = None,
    *,
    answer: object = None,
    grants: tuple[Capability, ...] = (),
    as_json: bool | None = None,
    text: str | None = None,
    fields: tuple[forms.Field, ...] | None = None,
) -> Response:
    """The form of an export, with submitted values and the result of the call."""
    full_name, typed = visit.query("export"), _typed(visit)
    known = forms.fields_of(export.input_schema)
    shown = (error.fields if error else ()) or fields or forms.refill(known or (), typed)
    return visit.page(
        "export.html",
        status,
        export=export,
        full_name=full_name,
        quoted=quote(full_name, safe=""),
        plugin_id=full_name.rpartition("/")[0],
        has_fields=known is not None,
        as_json=known is None or (visit.query("as") == "json" if as_json is None else as_json),
        groups=forms.groups_of(shown),
        json=typed.get("json", forms.example(export.input_schema)) if text is None else text,
        timeout=typed.get("timeout", ""),
        keep=bool(typed.get("keep")),
        problem="" if error is None else error.problem,
        answer=answer,
        grants=grants,
        tries=[try_view(each) for each in visit.dashboard.tries.of(visit.session, full_name)[:SHOWN_TRIES]],
    )
