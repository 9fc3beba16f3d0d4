"""A rune plugin in twenty lines: two tools, one of which can refuse."""

from plugbay.sdk import Plugin, ToolError

plugin = Plugin("example.greeter", version="1.0.0", capabilities=["tool.execute"])


@plugin.tool()
def greet(name: str, excited: bool = False) -> dict[str, str]:
    """Greet somebody by name."""
    print(f"greeting {name}")  # goes to stderr: it cannot break the protocol
    return {"text": f"Hello, {name}{'!' if excited else '.'}"}


@plugin.tool()
def divide(dividend: float, divisor: float) -> dict[str, float]:
    """Divide two numbers; shows how a tool reports an error of its own."""
    if divisor == 0:
        raise ToolError("the divisor must not be 0", code="invalid_input")
    return {"quotient": dividend / divisor}


if __name__ == "__main__":
    plugin.run()
