#!/bin/sh
# The caller gives up while the response is awaited.
# A cancelled call is recorded as timeout. The file `reached` says that the moment has come.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
: >reached
exec /bin/sleep 600
