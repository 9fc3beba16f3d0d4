#!/bin/sh
# Answers with bytes in a string that are not UTF-8.
# JSON is UTF-8: malformed_response. One known host passes the bytes on.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":"caf\351"}\n' "$id"
while read -r rest; do :; done
