"""rune (`rterm.plugin.v1`): line JSON, one process per call, nine failure codes."""
