#!/bin/sh
# Adds fields that nobody knows.
# Unknown fields are ignored: accepted.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[],"homepage":"x"},"mood":[1]}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"},"structured":null,"error_code":7}\n' "$id"
while read -r rest; do :; done
