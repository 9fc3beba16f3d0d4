#!/bin/sh
# Answers with metadata.
# metadata is read and ignored: accepted.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"},"metadata":{"took_ms":3}}\n' "$id"
while read -r rest; do :; done
