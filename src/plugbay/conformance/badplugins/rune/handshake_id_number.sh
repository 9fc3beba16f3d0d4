#!/bin/sh
# Declares a number as its plugin_id.
# Not one JSON object with fields of the right types: malformed_response.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":5,"plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
