#!/bin/sh
# Exposes its tool under a padded name.
# Tool names are compared exactly: tool_not_exposed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":[" bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
