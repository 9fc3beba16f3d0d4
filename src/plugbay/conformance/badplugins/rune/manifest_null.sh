#!/bin/sh
# Answers the handshake with null as its manifest.
# No manifest, no version: protocol_version_mismatch, not handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake","manifest":null}'
while read -r rest; do :; done
