#!/usr/bin/env plugbay-no-such-interpreter
# Asks env for an interpreter that does not exist.
# env starts and then exits with 127, so this is crashed; compare no_interpreter.sh.
