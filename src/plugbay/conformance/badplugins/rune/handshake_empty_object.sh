#!/bin/sh
# Answers the handshake with an empty object.
# An object without a type is no handshake: handshake_failed.
read -r greeting
printf '%s\n' '{}'
while read -r rest; do :; done
