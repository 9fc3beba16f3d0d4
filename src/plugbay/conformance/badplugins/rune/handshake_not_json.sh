#!/bin/sh
# Answers the handshake with text.
# Not one JSON object with fields of the right types: malformed_response.
read -r greeting
printf '%s\n' 'hello there'
while read -r rest; do :; done
