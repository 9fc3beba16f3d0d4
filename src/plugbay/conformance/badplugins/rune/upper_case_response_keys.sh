#!/bin/sh
# Writes the keys of its response in upper case.
# Keys are matched exactly, so its status is missing: malformed_response. One known host is more lenient.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","STATUS":"ok","OUTPUT":{}}\n' "$id"
while read -r rest; do :; done
