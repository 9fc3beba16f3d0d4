#!/bin/sh
# An echo plugin in POSIX shell without a single fork: the host writes compact JSON with `input` last.
IFS= read -r handshake || exit 0
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bench.echo","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["echo"],"capabilities":[]}}'
IFS= read -r request || exit 0
id=${request#*\"request_id\":\"}
id=${id%%\"*}
input=${request#*\"input\":}
input=${input%\}}
printf '{"type":"response","request_id":"%s","status":"ok","output":%s}\n' "$id" "$input"
IFS= read -r rest
exit 0
