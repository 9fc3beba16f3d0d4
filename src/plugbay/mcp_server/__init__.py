"""A host as one MCP server, over stdio and HTTP, and its entry in the configuration of MCP clients."""
