#!/bin/sh
# Answers every request as the contract says.
# Nothing is wrong with it: the positive control, and the call that must work after each bad one.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"good.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["good.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"}}\n' "$id"
while read -r rest; do :; done
