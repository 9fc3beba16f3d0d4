#!/bin/sh
# Writes a blank line before its handshake.
# The first line is the handshake, whatever it holds: malformed_response.
printf '\n'
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
