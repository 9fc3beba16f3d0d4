#!/bin/sh
# Is killed by a signal instead of answering the request.
# The output ends without a response: crashed, whatever ended it.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
read -r request
kill -9 $$
