#!/bin/sh
# Declares another plugin_id than it is bound to.
# plugin_id must equal the bound name: handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"other.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
