"""The commands `plugbay mcp login` and `logout`: OAuth for MCP servers on the network.

The login is saved in the state folder, in a private file that only these commands write. `plugbay.mcp_remote` has the
protocol; the bridge of the server uses the login from its next start on.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host
from plugbay.cli.options import AsJson, ConfigFile
from plugbay.cli.paths import CONFIG_NAME
from plugbay.cli.render import output
from plugbay.contracts.mcp import remote
from plugbay.model.errors import CallFailed, Code, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugbay.host.config.config import Config
    from plugbay.host.config.sections import OAuthClient
    from plugbay.mcp_remote.oauth import Attempt, Authority, Callback, Client
    from plugbay.model.fetch import Url
    from plugbay.model.spec import PluginSpec

SECONDS = 300.0
"""Time for a person to log in."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name.")]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="Also look in this folder of plugins.")]


def login(
    name: Name,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="SCOPES", help="Scopes to ask for; default: those of the server.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the URL.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time to log in.", min=1, max=3600)] = SECONDS,
    plugins: Plugins = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Log in to a server that demands OAuth. Prints a URL for the browser and waits for its answer on a loopback port.

    plugbay reload NAME applies the login to a running host.
    """
    import asyncio

    from plugbay.host.admin.servers import forget_login
    from plugbay.host.config import settings as settings_files

    loaded = _load(config)
    state = local_host.state_dir(loaded)
    spec = _find(name, loaded, plugins)
    server = None if loaded is None else loaded.mcp.get(name)
    flow = _Flow(spec, state, server.oauth if server is not None else None, scope or (), no_browser, as_json)
    made = asyncio.run(flow.run(timeout))
    with settings_files.changing(state):
        forget_login(state, name)
        settings_files.save_login(state, name, made)
    if as_json:
        shown = {"server": name, "issuer": made["issuer"], "scopes": made["scopes"], "expires_at": made["expires_at"]}
        output.print_json({**shown, "refreshes": bool(made["refresh_token"])})
        return
    output.note(f"{name} is logged in at {made['issuer']}")
    if not made["refresh_token"]:
        output.note("there is no refresh token: when the login expires, run this command again")
    output.note(f"next: plugbay mcp approve {name}; plugbay reload {name} applies the login to a running host")


def logout(name: Name, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Remove the login of a server, and revoke its tokens where the authorization server allows that."""
    import asyncio

    from plugbay.host.admin.servers import forget_login
    from plugbay.host.config import settings as settings_files
    from plugbay.host.confinement.policy import own_folder
    from plugbay.mcp_remote.oauth import read_tokens

    state = local_host.state_dir(_load(config))
    kept = settings_files.load_login(state, name)
    if not kept:
        hint = f"plugbay mcp login {name} begins a login"
        raise CallFailed(Failure(Code.NOT_FOUND, f"there is no login of {name}", plugin=name, detail={"hint": hint}))
    tokens = read_tokens(own_folder(state, name))
    newest = {**kept, **tokens} if tokens.get("login") == kept.get("id") else kept
    with settings_files.changing(state):
        forget_login(state, name)
    revoked = asyncio.run(_revoke(newest))
    if as_json:
        output.print_json({"server": name, "removed": True, "revoked": revoked})
        return
    output.note(f"the login of {name} is removed{' and revoked' if revoked else ''}")
    if not revoked:
        output.note(f"{kept['issuer']} did not revoke it; the tokens are valid until they expire")


async def _revoke(login: dict[str, Any]) -> bool:
    from plugbay.mcp_remote.http import HttpClient, HttpFailed
    from plugbay.mcp_remote.oauth import revoke

    http = HttpClient()
    try:
        return await revoke(http, login)
    except HttpFailed:
        return False
    finally:
        await http.aclose()


def _load(named: Path | None) -> Config | None:
    from plugbay.host.config import config

    file = named or Path(CONFIG_NAME)
    return config.load(file) if file.exists() else None


def _find(name: str, config: Config | None, plugins: Path | None) -> PluginSpec:
    """The server on the network of this name; raises `CallFailed`."""
    from plugbay.host.discovery.folders import discover
    from plugbay.host.discovery.servers import find_servers

    found = [] if config is None else find_servers(config)
    found += [] if plugins is None else discover([local_host.check_folder(plugins)])
    specs = {item.spec.id: item.spec for item in found if item.spec is not None and item.spec.contract == "mcp"}
    if name not in specs:
        known = ", ".join(name for name, spec in specs.items() if spec.url) or "none"
        text = f"there is no MCP server {name!r}; known servers on the network: {known}"
        hint = "plugbay mcp add NAME URL declares one"
        raise CallFailed(Failure(Code.NOT_FOUND, text, detail={"hint": hint}))
    if not specs[name].url:
        text = f"{name} is a program of this machine; only a server with a url has a login"
        raise CallFailed(
            Failure(Code.INVALID_INPUT, text, plugin=name, detail={"hint": "plugbay mcp secret sets keys"})
        )
    return specs[name]


class _Flow:
    """One login, from discovery to tokens."""

    def __init__(
        self,
        spec: PluginSpec,
        state: Path,
        client: OAuthClient | None,
        scopes: Sequence[str],
        no_browser: bool,
        as_json: bool,
    ) -> None:
        self._spec = spec
        self._state = state
        self._client = client
        self._scopes = tuple(" ".join(scopes).split())
        self._no_browser = no_browser
        self._as_json = as_json

    async def run(self, seconds: float) -> dict[str, Any]:
        """The login; raises `CallFailed`."""
        from plugbay.mcp_remote.http import HttpClient, HttpFailed

        http = HttpClient()
        try:
            return await self._log_in(http, seconds)
        except HttpFailed as error:
            detail = {
                key: value.replace("NAME", self._spec.id) if isinstance(value, str) else value
                for key, value in error.failure.detail.items()
            }
            failure = Failure(error.failure.code, error.failure.message, plugin=self._spec.id, detail=detail)
            raise CallFailed(failure) from None
        except TimeoutError:
            text = f"the login did not finish within {seconds:g} s"
            detail = {"hint": f"run plugbay mcp login {self._spec.id} again; --timeout N allows more time"}
            raise CallFailed(Failure(Code.TIMEOUT, text, plugin=self._spec.id, detail=detail)) from None
        finally:
            await http.aclose()

    async def _log_in(self, http: Any, seconds: float) -> dict[str, Any]:
        from plugbay.mcp_remote import oauth

        url, headers = self._resolve()
        authority = await oauth.Discovery(http, url, headers).find()
        callback = oauth.Callback()
        await callback.open((self._client and self._client.redirect_port) or 0)
        try:
            scopes = self._scopes or tuple((self._client and self._client.scopes) or authority.scopes)
            if scopes and authority.has_offline and oauth.OFFLINE not in scopes:
                scopes = (*scopes, oauth.OFFLINE)
            client = await self._choose_client(http, authority, callback.redirect, scopes)
            attempt = oauth.Attempt(authority, client, callback.redirect, scopes)
            self._show(attempt)
            if not self._no_browser:
                _open_browser(attempt.url, callback)
            response = await callback.wait(attempt.is_answered_by, seconds)
            return await attempt.exchange(http, attempt.code(response))
        finally:
            callback.close()

    def _resolve(self) -> tuple[Url, list[tuple[str, str]]]:
        """URL and headers of the server with their references resolved; raises `CallFailed`."""
        from plugbay.host.config import settings as settings_files
        from plugbay.host.config.references import resolve_references
        from plugbay.process.command import LaunchFailed

        secrets = settings_files.load_secrets(self._state, self._spec.id)
        plain = [(key, value) for key, value in self._spec.env if not self._lacks(value, secrets)]
        try:
            env = resolve_references(_with_env(self._spec, plain), {}, secrets, os.environ).env
        except LaunchFailed as error:
            detail = {"hint": error.hint}
            raise CallFailed(Failure(error.code, error.message, plugin=self._spec.id, detail=detail)) from None
        url = remote.read_url(dict(env)[remote.URL_VARIABLE])
        if isinstance(url, str):
            raise CallFailed(Failure(Code.INVALID_INPUT, f"the URL {url}", plugin=self._spec.id))
        prefix = remote.HEADER_VARIABLE
        return url, [(key.removeprefix(prefix), value) for key, value in env if key.startswith(prefix)]

    def _lacks(self, value: str, secrets: dict[str, Any]) -> bool:
        """Whether a value refers to a secret that is not set: a login may come before it."""
        from plugbay.host.config.references import secret_name

        wanted = secret_name(self._spec, value)
        return wanted is not None and wanted not in secrets

    async def _choose_client(self, http: Any, authority: Authority, redirect: str, scopes: Sequence[str]) -> Client:
        from plugbay.mcp_remote import oauth

        own = self._client
        if own is not None and own.client_id is not None:
            return oauth.known_client(authority, own.client_id, self._client_secret(own.client_secret))
        if own is not None and own.client_id_url is not None and authority.takes_client_urls:
            return oauth.Client(own.client_id_url)
        return await oauth.register(http, authority, redirect, scopes)

    def _client_secret(self, declared: str | None) -> str:
        """The secret of the declared client; raises `CallFailed`."""
        from plugbay.host.config import settings as settings_files
        from plugbay.host.config.references import SECRET

        if declared is None:
            return ""
        if declared.startswith(SECRET):
            key = declared.removeprefix(SECRET)
            found = settings_files.load_secrets(self._state, self._spec.id).get(key)
            hint = f"plugbay mcp secret {self._spec.id} {key}"
        else:
            key = declared.removeprefix("${").removesuffix("}")
            found, hint = os.environ.get(key), f"set the variable {key}"
        if not found:
            text = f"the secret of the OAuth client of {self._spec.id} is not set"
            raise CallFailed(Failure(Code.INVALID_INPUT, text, plugin=self._spec.id, detail={"hint": hint}))
        return str(found)

    def _show(self, attempt: Attempt) -> None:
        """Print the URL for the browser."""
        output.note(f"log in to {self._spec.id} with this URL:")
        print(attempt.url, file=sys.stderr if self._as_json else sys.stdout, flush=True)  # a wrapped URL is useless


def _open_browser(url: str, callback: Callback) -> None:
    """Open a browser on a thread of its own: some browsers end only when the user closes them. Say if there is none."""
    import threading
    import webbrowser

    def open_url() -> None:
        is_open = False
        with suppress(webbrowser.Error, OSError):
            is_open = webbrowser.open(url)
        if not is_open and not callback.is_answered:
            port = callback.redirect.split(":")[2].partition("/")[0]
            far = f"for a browser on another machine, forward the port first: ssh -L {port}:127.0.0.1:{port} HOST"
            output.note(f"no browser can be opened here; open the URL in a browser of this machine, or, {far}")

    threading.Thread(target=open_url, name="plugbay-browser", daemon=True).start()


def _with_env(spec: PluginSpec, env: list[tuple[str, str]]) -> PluginSpec:
    from msgspec.structs import replace

    return replace(spec, env=tuple(env))
