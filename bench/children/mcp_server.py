"""The MCP Python SDK at its best: an async tool without structured output, so nothing is sent twice."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer


async def echo(text: str) -> str:
    """Send the text back."""
    return text


if __name__ == "__main__":
    server = MCPServer("bench")
    server.tool(structured_output=False)(echo)
    server.run("stdio")
