#!/bin/sh
# Answers with null as its output.
# output may be any JSON value: accepted.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":null}\n' "$id"
while read -r rest; do :; done
