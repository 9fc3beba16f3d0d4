#!/bin/sh
# Closes its stdout instead of answering the request, and stays.
# The output ends without a response: crashed, although the process lives.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
exec 1>&-
exec /bin/sleep 600
