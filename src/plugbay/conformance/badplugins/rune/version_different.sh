#!/bin/sh
# Speaks rterm.plugin.v2.
# The version must be the one that was asked for: protocol_version_mismatch.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v2","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
