#!/bin/sh
# Exposes another tool than the one that is called.
# The called tool must be in exposed_tools: tool_not_exposed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["other.tool"],"capabilities":[]}}'
while read -r rest; do :; done
