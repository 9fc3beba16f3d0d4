"""Replays recordings: to a real plugin (`mock_host`), or to a host in place of the plugin (`mock_plugin`)."""
