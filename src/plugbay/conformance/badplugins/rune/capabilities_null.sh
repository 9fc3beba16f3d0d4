#!/bin/sh
# Was granted a capability and declares null.
# When capabilities are granted, the handshake must declare some: capability_not_declared.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":null}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"}}\n' "$id"
while read -r rest; do :; done
