#!/bin/sh
# Declares its plugin_id with blanks around it.
# plugin_id must equal the bound name byte for byte, untrimmed: handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":" bad.plugin ","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["bad.tool"],"capabilities":[]}}'
while read -r rest; do :; done
