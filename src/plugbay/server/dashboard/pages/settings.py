"""The settings and secrets of a plugin as forms. A secret is written, never shown."""

from __future__ import annotations

from urllib.parse import quote

from msgspec.structs import replace
from starlette.responses import Response

from plugbay.server.dashboard import forms
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.views.settings import SettingsPage, changes_of, settings_page
from plugbay.server.dashboard.views.tones import BAD, GOOD
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.principal import HOST

MAX_SECRET = 64 << 10
"""Characters of a secret."""


@require_session(HOST)
async def show_settings(visit: Visit) -> Response:
    return await _settings_page(visit)


@require_session(HOST)
async def change_settings(visit: Visit) -> Response:
    """Save the submitted settings, reset one, or save or remove a secret; then reload the plugin if asked to."""
    plugin_id, settings = visit.query("plugin"), visit.gateway.operator_settings
    try:
        if visit.field("secret"):
            text = await _change_secret(visit, plugin_id, visit.field("secret"))
        elif visit.field("reset"):
            await settings.reset(visit.principal, plugin_id, visit.field("reset"))
            text = f"{visit.field('reset')} was reset."
        else:
            refused = await _save(visit, plugin_id)
            if refused is not None:
                return refused
            text = "The settings were saved."
        text = f"{text} {await _reload(visit, plugin_id)}"
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _settings_page(visit, error.status, Notice(BAD, error.message))
    return visit.redirect(f"/settings?plugin={quote(plugin_id, safe='')}", Notice(GOOD, text))


async def _save(visit: Visit, plugin_id: str) -> Response | None:
    """Save what differs; the page with the problems at their fields if something is refused."""
    page = settings_page(*await visit.gateway.operator_settings.describe(plugin_id))
    typed = {name: values[0] for name, values in visit.form.items()}
    try:
        made = forms.input_of(page.fields, typed)
    except forms.Invalid as error:
        return await _settings_page(visit, 400, page=page.with_fields(error.fields))
    changes = changes_of(page.fields, made)
    failures = await visit.gateway.operator_settings.change(visit.principal, plugin_id, changes) if changes else {}
    if not failures:
        return None
    marked = [
        replace(field, problem=failures[field.name].message) if field.name in failures else field
        for field in forms.refill(page.fields, typed)
    ]
    return await _settings_page(visit, 400, page=page.with_fields(marked))


async def _change_secret(visit: Visit, plugin_id: str, name: str) -> str:
    value, settings = visit.field("value"), visit.gateway.operator_settings
    if visit.field("remove"):
        await settings.set_secret(visit.principal, plugin_id, name, None)
        return f"The secret {name} was removed."
    if not value or len(value) > MAX_SECRET:
        text = f"{name} has more than {MAX_SECRET:,} characters" if value else f"enter a value for {name}"
        raise invalid("request.invalid", text, name)
    await settings.set_secret(visit.principal, plugin_id, name, value)
    return f"The secret {name} was saved."


async def _reload(visit: Visit, plugin_id: str) -> str:
    """Reload the plugin if the form says so; what to tell about it."""
    if not visit.field("reload"):
        return "It takes effect when the plugin is reloaded."
    await visit.gateway.operator_plugins.operate(visit.principal, plugin_id, "reload")
    return f"{plugin_id} was reloaded."


async def _settings_page(
    visit: Visit, status: int = 200, notice: Notice | None = None, page: SettingsPage | None = None
) -> Response:
    plugin_id, problem = visit.query("plugin"), ""
    visit.dashboard.loader.plugin(plugin_id)
    if page is None:
        try:
            page = settings_page(*await visit.gateway.operator_settings.describe(plugin_id))
        except GatewayError as error:
            page, problem = SettingsPage((), (), ()), error.message
    return visit.page("settings.html", status, notice, id=plugin_id, page=page, problem=problem)
