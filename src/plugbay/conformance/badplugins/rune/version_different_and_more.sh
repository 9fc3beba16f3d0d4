#!/bin/sh
# Speaks another version and has every other field wrong, too.
# The version is checked before the other fields: protocol_version_mismatch.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"","plugin_version":"","protocol_version":"rterm.plugin.v0","exposed_tools":[],"capabilities":[]}}'
while read -r rest; do :; done
