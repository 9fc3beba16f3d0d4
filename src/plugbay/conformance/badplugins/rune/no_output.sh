#!/bin/sh
# Answers with status ok and no output.
# output may be missing: accepted, without a value.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok"}\n' "$id"
while read -r rest; do :; done
