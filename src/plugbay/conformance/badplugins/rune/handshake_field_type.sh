#!/bin/sh
# Declares its exposed_tools as a string.
# Not one JSON object with fields of the right types: malformed_response.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":"bad.tool","capabilities":[]}}'
while read -r rest; do :; done
