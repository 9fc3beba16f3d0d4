#!/bin/sh
# Writes a second JSON line between its handshake and its response.
# The second line is taken for the response: malformed_response.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
printf '%s\n' '{"type":"log","message":"ready"}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"}}\n' "$id"
while read -r rest; do :; done
