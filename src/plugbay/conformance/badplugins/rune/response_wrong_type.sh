#!/bin/sh
# Answers with a message of type result.
# The second line must have type response: malformed_response.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"result","request_id":"%s","status":"ok","output":{"said":"hello"}}\n' "$id"
while read -r rest; do :; done
