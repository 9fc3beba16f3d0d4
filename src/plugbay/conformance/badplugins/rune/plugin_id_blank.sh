#!/bin/sh
# Declares a blank plugin_id.
# A required field of the handshake's manifest is missing or blank: handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":" ","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
