#!/bin/sh
# Writes the keys of its handshake in upper case.
# Keys are matched exactly, so its id is missing: handshake_failed. One known host is more lenient.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"PLUGIN_ID":"bad.plugin","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
