"""The bridge to an MCP server on the network: a program between the host's pipes and streamable HTTP, with OAuth."""
