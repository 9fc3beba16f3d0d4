"""A host behind MCP: its plugins as one MCP server, over stdio and over HTTP, and its entry in MCP clients."""
