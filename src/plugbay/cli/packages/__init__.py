"""Package commands: pack, sign, verify, trust, push, pull, install."""
