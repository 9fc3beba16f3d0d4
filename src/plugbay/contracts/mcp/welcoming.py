"""A HOST gets to know a server and stays up to date: the greeting, the catalogue, changes of either.

Owns the way from the greeting through the lists to `Ready`, reading a list again when the server says that it changed,
and the one subscription of the modern era. Refuses to know what is called afterwards; that is `client.py`.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse
from plugbay.contracts.mcp import errors, messages
from plugbay.contracts.mcp.calling import CALL, HELLO, LISTEN, PAGE, CallingMachine, Sent
from plugbay.contracts.mcp.catalogue import Listing, announced_lists
from plugbay.contracts.mcp.greeting import Greeting
from plugbay.contracts.mcp.messages import HANDSHAKE, LISTS, MODERN, as_object
from plugbay.contracts.rpc import READY, noise
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, Notified, Ready
from plugbay.model.operations import OfferExports
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.contracts.mcp.messages import List
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import WatchResource
    from plugbay.wire.strict_json import Codec

CLIENT = {"name": "plugbay", "version": "0"}
"""Who a host is that does not say."""

TEMPLATES = "resource_templates"

MAX_RELISTS = 1_000
"""How often a server may make us list again; one that changes with every listing would keep both ends busy."""


class WelcomingMachine(CallingMachine):
    """What a host does before it calls, and beside it."""

    __slots__ = tuple(
        "_about_us _greeting _hello _level _listen _listing _relists _stale _tools _watched _watching capabilities "
        "offer offers".split()
    )

    def __init__(
        self, role: str, codec: Codec, era: str, client: Mapping[str, Any] | None, offers: frozenset[str]
    ) -> None:
        super().__init__(role, codec)
        if era not in messages.ERAS:
            raise Misuse(f"{era!r} is no era of MCP; there are {' and '.join(messages.ERAS)}")
        self.offers = offers
        self.capabilities: dict[str, Any] = {}
        """What the server announced."""
        self.offer = messages.empty_offer()
        self._greeting = Greeting(era, client or CLIENT, offers)
        self._hello: dict[str, Any] = {}
        self._listing: Listing | None = None
        self._stale: set[str] = set()
        """Lists that changed while they were read."""
        self._relists = 0
        self._tools: dict[str, bytes] = {}
        """Every tool, and the members of a call of it up to its arguments."""
        self._level = ""
        self._about_us = b""
        """The members of `_meta` that every request has."""
        self._listen: Sent | None = None
        self._watched: list[str] = []
        self._watching: list[CallId] = []
        """Calls that wait for the server to acknowledge a subscription."""

    @property
    def era(self) -> str:
        """HOST: the era in which it speaks now."""
        return self._greeting.era

    # Requests.

    def _meta(self, sent: Sent, wire: int) -> bytes:
        """Only calls have progress. What never changes was encoded before; what a caller adds comes before it."""
        ours = self._about_us
        if sent.kind != CALL:
            return b"{%b}" % ours if ours else b""
        extra = self.codec.encode(sent.extra)[1:-1] + b"," if sent.extra else b""
        return b'{%b%b%b"progressToken":%d}' % (extra, ours, b"," if ours else b"", wire)

    def _introduce(self) -> None:
        """From now on each request says who asks, in the modern era; in the other one that was said before."""
        if self.era == MODERN:
            level = {messages.LOG_LEVEL: self._level} if self._level else {}
            self._about_us = self.codec.encode({**self._greeting.meta(), **level})[1:-1]

    # The greeting.

    def _send_greeting(self) -> None:
        self._last_id = 0
        if self.era == MODERN:
            self._step("discover")
        self._open_with_greeting()

    def _open_with_greeting(self) -> None:
        method, params = self._greeting.opening()
        failure = self._write_request(self._last_id + 1, method, self._json(params))
        if failure is not None:
            raise Misuse(f"mcp host: the greeting cannot be sent: {failure.message}")
        self._remember(self._last_id + 1, Sent(HELLO, method))

    def _greeted_back(self, message: Any) -> list[Event]:
        era = self.era
        if message.error is not ABSENT:
            verdict: Any = self._greeting.refused(message.error)
        else:
            verdict = self._greeting.accepted(None if message.result is ABSENT else self.codec.load(message.result))
        if isinstance(verdict, Failure):
            return self._fault(verdict)
        if verdict is None:
            if self.era != era:
                self._step("discover" if self.era == MODERN else "initialize")
            self._open_with_greeting()
            return []
        self._greeted = True
        self._step("welcome")
        self._introduce()
        self.capabilities = verdict.capabilities
        self._hello = {
            "era": self.era,
            "protocol_version": verdict.version,
            "server": verdict.server,
            "capabilities": verdict.capabilities,
        }
        if self.era == HANDSHAKE:
            self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        self._listing = Listing(announced_lists(self.capabilities), self.offer)
        for warning in verdict.warnings:
            self._listing.warn(warning)
        return self._list_on(self._listing)

    # The catalogue.

    def _list_on(self, listing: Listing) -> list[Event]:
        """Ask for the next page; when there is none, the catalogue is whole."""
        while (listed := listing.current) is not None:
            unsent = self._put(Sent(PAGE, listed.method, self.codec.encode(listing.params())[1:-1]))
            if unsent is None:
                return []
            listing.failed(unsent, expected=False)
        self._listing = None
        changed = listing.offer != self.offer
        self.offer = listing.offer
        self._tools = messages.call_prefixes(self.offer["tools"], self.codec)
        if not self._hello:
            return self._listed_again(listing, changed)
        hello, self._hello = self._hello, {}
        self._step("hello")
        if self.era == MODERN:
            self._subscribe()
        return [Ready({**hello, "offer": self.offer, "warnings": listing.warnings}), *self._relist()]

    def _listed_again(self, listing: Listing, changed: bool) -> list[Event]:
        odd = [event for warning in listing.warnings for event in noise(b"", warning)]
        news: list[Event] = [Notified(OfferExports(self.offer))] if changed else []
        return [*odd, *news, *self._relist()]

    def _page(self, message: Any, size: int) -> list[Event]:
        listing = self._listing
        listed = None if listing is None else listing.current
        if listing is None or listed is None:
            return []
        if message.error is not ABSENT or message.result is ABSENT:
            return self._page_failed(errors.from_error(OfferExports, listed.method, message.error))
        if not self._announces(listed):
            listing.warn(f"answers {listed.method} without announcing {listed.capability}")
        listing.take(self.codec.load(message.result), size)
        return self._list_on(listing)

    def _page_failed(self, failure: Failure) -> list[Event]:
        listing = self._listing
        listed = None if listing is None else listing.current
        if listing is None or listed is None:
            return []
        unknown = failure.detail.get("plugin_code") == errors.METHOD_NOT_FOUND
        # Templates are asked for along with resources, and many servers have none; tools on the off chance.
        listing.failed(failure, expected=unknown and (listed.name == TEMPLATES or not self._announces(listed)))
        return self._list_on(listing)

    def _announces(self, listed: List) -> bool:
        return isinstance(self.capabilities.get(listed.capability), dict)

    def _changed(self, kind: str) -> list[Event]:
        """A list is out of date: it is read again as soon as nothing else is being read."""
        self._stale |= {listed.name for listed in LISTS if listed.capability == kind}
        return self._relist()

    def _relist(self) -> list[Event]:
        if self.state != READY or self._listing is not None or not self._stale:
            return []
        lists = [listed for listed in LISTS if listed.name in self._stale]
        self._stale.clear()
        self._relists += 1
        if self._relists > MAX_RELISTS:
            return noise(b"", f"its lists changed more than {MAX_RELISTS:,} times; they are not read again")
        self._listing = Listing(lists, self.offer)
        return self._list_on(self._listing)

    # Subscriptions of the modern era.

    def _subscribe(self, *, watching: bool = False) -> Failure | None:
        """Ask to hear of everything the server announces, in the place of what was asked before."""
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if as_object(self.capabilities.get(kind)).get("listChanged") is True
        }
        if self._watched or watching:
            wanted["resourceSubscriptions"] = self._watched
        before, self._listen = self._listen, None
        if wanted:
            sent = Sent(LISTEN, messages.LISTEN, b'"notifications":%b' % self.codec.encode(wanted))
            failure = self._put(sent)
            if failure is not None:
                self._listen = before
                return failure
            self._listen = sent
        for wire in [wire for wire, sent in self._outstanding.items() if sent is before]:
            del self._outstanding[wire]
            self._write_notification(messages.CANCELLED, self._json({"requestId": wire}))
        return None

    def _watch(self, id: CallId, op: WatchResource) -> Failure | None:
        """Hear of one resource more, or less; the call is over when the server has acknowledged that."""
        before = self._watched
        self._watched = [uri for uri in before if uri != op.uri] + [op.uri] * op.wanted
        failure = self._subscribe(watching=True)
        if failure is not None:
            self._watched = before
        else:
            self._watching.append(id)
        return failure

    def _unwatch(self, id: CallId) -> None:
        if id in self._watching:
            self._watching.remove(id)

    def _acknowledged(self, params: dict[str, Any]) -> list[Event]:
        which = as_object(params.get("_meta")).get(messages.SUBSCRIPTION)
        if type(which) is not int or self._outstanding.get(which) is not self._listen:
            return []  # one that was replaced since
        watching, self._watching = self._watching, []
        return [CallFinished(call) for call in watching]

    def _unheard(self, sent: Sent, why: str) -> list[Event]:
        """A subscription is over, or never was."""
        if sent is not self._listen:
            return []
        watching, self._watching = self._watching, []
        self._listen = None
        failure = Failure(Code.UNAVAILABLE, why, origin=Origin.PLUGIN)
        return [*noise(b"", why), *(CallFinished(call, None, failure) for call in watching)]
