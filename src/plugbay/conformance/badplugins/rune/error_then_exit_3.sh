#!/bin/sh
# Answers with an error and exits with 3.
# After status error the exit does not matter: the plugin's own error.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"error","error":{"code":"out_of_order","message":"not today"}}\n' "$id"
while read -r rest; do :; done
exit 3
