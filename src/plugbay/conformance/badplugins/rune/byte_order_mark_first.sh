#!/bin/sh
# Writes a byte order mark before its handshake.
# JSON begins with its first byte: malformed_response.
read -r greeting
printf '\357\273\277'
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
