"""The wire of a plugin: its frames as they pass, and recordings of them."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.live import WireFeed, check_stream_limit, follow_while_listening
from plugbay.server.dashboard.views.tones import BAD, GOOD
from plugbay.server.dashboard.views.wire import WireReader
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.principal import HOST


@require_session(HOST)
async def show_wire(visit: Visit) -> Response:
    return _wire_page(visit)


def _wire_page(visit: Visit, status: int = 200, notice: Notice | None = None) -> Response:
    plugin_id, recordings = visit.query("plugin"), visit.gateway.recordings
    plugin = visit.dashboard.loader.plugin(plugin_id)
    return visit.page(
        "wire.html",
        status,
        notice,
        id=plugin_id,
        contract=plugin.status.spec.contract,
        recordings=recordings.list(plugin_id),
        recording=recordings.is_running(plugin_id),
    )


@require_session(HOST, live=True)
async def follow_wire(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    plugin_id = visit.query("plugin")
    visit.dashboard.loader.plugin(plugin_id)
    return event_stream(visit.request, follow_while_listening(visit, WireFeed(visit.gateway, plugin_id)))


@require_session(HOST)
async def record_wire(visit: Visit) -> Response:
    """Begin or end the recording of a plugin, or remove a recording."""
    plugin_id, operation, recordings = visit.query("plugin"), visit.field("operation"), visit.gateway.recordings
    visit.dashboard.loader.plugin(plugin_id)
    try:
        if operation == "begin":
            await recordings.begin(visit.principal, plugin_id)
            text = f"{plugin_id} is being recorded."
        elif operation == "end":
            await recordings.end(visit.principal, plugin_id)
            text = "The recording has ended."
        elif operation == "remove":
            await recordings.remove(visit.principal, visit.field("name"))
            text = "The recording was removed."
        else:
            raise invalid("request.invalid", "the form has no operation", "operation")
    except GatewayError as error:
        return _wire_page(visit, error.status, Notice(BAD, error.message))
    return visit.redirect(f"/wire?plugin={quote(plugin_id, safe='')}", Notice(GOOD, text))


@require_session(HOST)
async def show_recording(visit: Visit) -> Response:
    """The frames of a recording."""
    recordings, name = visit.gateway.recordings, visit.request.path_params["name"]
    file, recording = recordings.get(name), await recordings.read(name)
    return visit.page(
        "recording.html",
        file=file,
        contract=recording.header.contract,
        version=recording.header.plugin_version,
        hosted=file.plugin_id in visit.gateway.host.specs,
        rows=WireReader(recording.header.contract).rows(recording.items),
        complete=recording.end is not None,
    )
