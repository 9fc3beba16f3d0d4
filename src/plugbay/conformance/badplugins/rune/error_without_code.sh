#!/bin/sh
# Answers with an error that has no code.
# The code may be missing: the plugin's own error.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"error","error":{"message":"something is wrong"}}\n' "$id"
while read -r rest; do :; done
