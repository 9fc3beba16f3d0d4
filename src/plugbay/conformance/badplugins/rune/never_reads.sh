#!/bin/sh
# Never reads its stdin, whatever the size of the request.
# A request that does not fit the pipe must not block the host: timeout.
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
exec /bin/sleep 600
