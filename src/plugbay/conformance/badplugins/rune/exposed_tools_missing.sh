#!/bin/sh
# Declares no exposed_tools.
# A required field of the handshake's manifest is missing or blank: handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","capabilities":[]}}'
while read -r rest; do :; done
