#!/bin/sh
# Ignores SIGTERM, SIGINT and SIGHUP and never leaves.
# What does not leave is killed: crashed, and nothing may be left.
trap '' TERM INT HUP
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
id=${request#*'"request_id":"'}; id=${id%%'"'*}
printf '{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"}}\n' "$id"
while :; do /bin/sleep 1; done
