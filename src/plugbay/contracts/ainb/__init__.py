"""ainb v2: framed JSON-RPC both ways with a resident plugin; screens, keys, commands, snapshots, actions, files."""
