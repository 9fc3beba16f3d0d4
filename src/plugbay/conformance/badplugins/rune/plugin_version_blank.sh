#!/bin/sh
# Declares a blank plugin_version.
# A required field of the handshake's manifest is missing or blank: handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
