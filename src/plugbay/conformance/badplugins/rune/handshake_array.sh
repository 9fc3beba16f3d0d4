#!/bin/sh
# Answers the handshake with an array.
# Not one JSON object with fields of the right types: malformed_response.
read -r greeting
printf '%s\n' '[]'
while read -r rest; do :; done
