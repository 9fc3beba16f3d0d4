#!/bin/sh
# Exposes another tool and declares a capability nobody granted.
# The tool is checked before the capabilities: tool_not_exposed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["other.tool"],"capabilities":["z"]}}'
while read -r rest; do :; done
