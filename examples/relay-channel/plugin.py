"""A channel over plain TCP: each connection is a participant, one line per message.

Lines of participants are published on `plugin.inbound.relay`. Messages that the host publishes on
`plugin.outbound.relay`, or sends through the channel, go to one participant or to all. Everything runs on the one event
loop of the SDK, so there are no locks.
"""

import asyncio
import json
import os

from plugbay.sdk import ChannelConnectionFailed, Event, Plugin, RateLimited, RecipientInvalid, UnsupportedFeature

INBOUND = "plugin.inbound.relay"

LONGEST_LINE = 8_192
"""Bytes of one message; a participant that sends more is disconnected."""

MOST_UNREAD = 65_536
"""Bytes that may wait for a person who does not read."""

plugin = Plugin("relay", version="1.0.0", name="Relay", description="A channel over plain TCP: one line per message.")


class Relay:
    """The connected participants, by name."""

    def __init__(self) -> None:
        self.guests: dict[str, asyncio.StreamWriter] = {}
        self.server: asyncio.Server | None = None
        self.port = 0
        self._topic = INBOUND
        self._joined = 0
        self._sent = 0
        self._turn = asyncio.Lock()

    async def start(self, instance: str | None) -> None:
        """Listen, and report the address. Starting twice is not an error."""
        async with self._turn:
            if self.server is not None:
                return
            port = int(os.environ.get("RELAY_PORT", "0"))
            try:
                self.server = await asyncio.start_server(self._talk, "127.0.0.1", port, limit=LONGEST_LINE)
            except OSError as error:
                raise ChannelConnectionFailed(f"cannot listen on port {port}: {error.strerror}") from error
            self.port = self.server.sockets[0].getsockname()[1]
            self._topic = f"{INBOUND}.{instance}" if instance else INBOUND
            self._publish(type="listening", port=self.port)

    async def stop(self) -> None:
        """Close everything. Stopping twice is not an error."""
        async with self._turn:
            if self.server is not None:
                self.server.close()
                self.server, self.port = None, 0
            for writer in self.guests.values():
                writer.close()

    async def send(self, message: dict[str, object]) -> str:
        """Deliver a message of the contract's three kinds; its id is the receipt."""
        if self.server is None:
            raise ChannelConnectionFailed("the channel is not started")
        self.write(*addressed(message))
        self._sent += 1
        return f"relay-{self._sent}"

    def write(self, to: str | None, text: str) -> None:
        """One line to one guest, or to all of them."""
        if to is not None and to not in self.guests:
            raise RecipientInvalid(to, "nobody of that name is connected")
        line = " ".join(text.splitlines()).encode("utf-8", "replace") + b"\n"
        for name in list(self.guests) if to is None else [to]:
            writer = self.guests[name]
            if writer.transport.get_write_buffer_size() <= MOST_UNREAD:
                writer.write(line)
            elif name == to:
                raise RateLimited(1, f"{name} does not read what was sent before")

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._joined += 1
        name = f"guest{self._joined}"
        self.guests[name] = writer
        writer.write(f"you are {name}\n".encode())
        try:
            async for line in reader:
                self._publish(**{"type": "message", "from": name, "text": line.decode("utf-8", "replace").strip()})
        except (ConnectionError, ValueError) as error:  # ValueError: the line is too long
            plugin.host.log(f"{name} is gone: {error}")
        finally:
            del self.guests[name]
            writer.close()

    def _publish(self, **payload: object) -> None:
        plugin.host.events.publish(self._topic, payload)


def addressed(message: dict[str, object]) -> tuple[str | None, str]:
    """The recipient of a message, None for all, and its text."""
    match message:
        case {"kind": "text", "to": str(to), "body": str(body)}:
            return to, body
        case {"kind": "media", "to": str(to), "url": str(url)}:
            return to, f"{message.get('caption') or 'media'}: {url}"
        case {"kind": "custom", "to": str(to), **payload}:
            return to, json.dumps(payload)
        case {"kind": "custom", **payload}:
            return None, json.dumps(payload)
    raise UnsupportedFeature(f"a message like {json.dumps(message)[:80]}")


relay = plugin.channel("relay")(Relay())


@plugin.on_event()
async def outbound(event: Event) -> None:
    """`{"text": …}` goes to all, `{"text": …, "to": …}` to one."""
    match event.payload:
        case {"text": str(text), "to": str(to)}:
            relay.write(to, text)
        case {"text": str(text)}:
            relay.write(None, text)


@plugin.tool(
    description="Whether the relay listens, where, and who is connected.",
    input_schema={"type": "object", "additionalProperties": False, "examples": [{}]},
)
async def status() -> dict[str, object]:
    """Offered as `relay_status`: a nexo tool carries the id of its plugin."""
    return {"listening": relay.server is not None, "port": relay.port, "guests": sorted(relay.guests)}


if __name__ == "__main__":
    plugin.run()
