"""A compactor: shortens a conversation that has grown too long.

System messages, the first request and the last messages stay; one line replaces the messages between them. Below a
threshold it declines, and the host uses its own strategy.
"""

from plugbay.sdk import Plugin

LONGEST_QUOTE = 60
"""Characters of a message in the line that stands for it."""

CONFIG = {
    "type": "object",
    "properties": {
        "keep": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 12},
        "threshold": {"type": "integer", "minimum": 2, "maximum": 10000, "default": 20},
        "quotes": {"type": "integer", "minimum": 0, "maximum": 20, "default": 3},
    },
    "additionalProperties": False,
}

plugin = Plugin(
    "window-compactor",
    version="1.0.0",
    description="Keeps the beginning and the end of a conversation, and one line for the rest.",
    config_schema=CONFIG,
)

plugin.knob(
    "keep",
    type="int_range",
    label="Last messages",
    description="How many of the last messages stay word for word.",
    binds_to="config.keep",
    default=12,
    min=1,
    max=200,
    step=1,
)
plugin.knob(
    "threshold",
    type="int_range",
    label="Leave alone below",
    description="A conversation with fewer messages is left to the host's own strategy.",
    binds_to="config.threshold",
    default=20,
    min=2,
    max=1000,
    step=1,
)
plugin.knob(
    "quotes",
    type="int_range",
    label="Messages quoted",
    binds_to="config.quotes",
    default=3,
    min=0,
    max=10,
    step=1,
)


@plugin.compactor
def compact(messages: list[dict], ctx):
    settings = ctx.config
    if len(messages) < settings.get("threshold", 20):
        return None
    spoken = [at for at, message in enumerate(messages) if message.get("role") != "system"]
    first = next((at for at in spoken if messages[at].get("role") == "user"), None)
    last = spoken[window(messages, spoken, settings.get("keep", 12)) :]
    gone = [at for at in spoken if at != first and at not in set(last)]
    if not gone:
        return None
    left = [message for at, message in enumerate(messages) if at not in set(gone)]
    place = sum(at not in set(gone) for at in range(gone[0]))
    left.insert(place, {"role": "system", "content": summary([messages[at] for at in gone], settings.get("quotes", 3))})
    return left


def window(messages: list[dict], spoken: list[int], keep: int) -> int:
    """The start of the last messages; never at a tool result whose call would be removed."""
    start = max(len(spoken) - keep, 0)
    while start < len(spoken) and messages[spoken[start]].get("role") == "tool":
        start += 1
    return start


def summary(gone: list[dict], quotes: int) -> str:
    """One line for many messages: the number of each kind, and the first words of the user."""
    roles = [str(message.get("role", "?")) for message in gone]
    counts = ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles))
    said = [quoted(str(message.get("content", ""))) for message in gone if message.get("role") == "user"][:quotes]
    return f"[{len(gone)} earlier messages left out ({counts}){': ' * bool(said)}{', '.join(said)}]"


def quoted(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line}”" if len(line) <= LONGEST_QUOTE else f"“{line[: LONGEST_QUOTE - 1]}…”"


if __name__ == "__main__":
    plugin.run()
