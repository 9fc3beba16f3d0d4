#!/bin/sh
# Leaves a process that keeps its stdout open.
# The exit of the plugin counts, not the end of its output: accepted, without waiting.
/bin/sleep 600 &
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"}}\n' "$id"
while read -r rest; do :; done
