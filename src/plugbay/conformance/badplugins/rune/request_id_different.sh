#!/bin/sh
# Answers with another request_id.
# The response must carry the request's id: malformed_response.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '%s\n' '{"type":"response","request_id":"plugin_req_0000000000000000","status":"ok","output":{}}'
while read -r rest; do :; done
