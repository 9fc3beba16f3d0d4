#!/bin/sh
# Writes half of its handshake and exits.
# Some bytes and the end of the output are malformed_response; no bytes at all are crashed.
read -r greeting
printf '%s' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","pl'
