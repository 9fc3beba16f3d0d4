#!/bin/sh
# Answers with an error whose message is blank.
# An error needs a message that is not blank: malformed_response.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"error","error":{"code":"x","message":"  "}}\n' "$id"
while read -r rest; do :; done
