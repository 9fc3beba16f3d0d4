#!/no/such/interpreter
# Asks for an interpreter that does not exist.
# exec itself fails, so this is launch_failed; compare env_without_interpreter.sh.
