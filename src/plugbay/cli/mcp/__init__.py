"""`plugbay mcp …`: MCP servers as plugins, and plugins as an MCP server."""
