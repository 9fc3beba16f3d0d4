#!/bin/sh
# Answers the handshake with a message of type response.
# The first line must have type handshake: handshake_failed.
read -r greeting
printf '%s\n' '{"type":"response","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
