#!/bin/sh
# Exits with 0 instead of answering the request.
# The output ends without a response: crashed, whatever the exit code.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
exit 0
