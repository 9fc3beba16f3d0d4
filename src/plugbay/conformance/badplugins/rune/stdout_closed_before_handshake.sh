#!/bin/sh
# Closes its stdout instead of answering, and stays.
# The output ends without a byte: crashed, although the process lives.
read -r greeting
exec 1>&-
exec /bin/sleep 600
