"""The vai contract (`vai.rpc.v1`): packages of tools, hooks, compactors and harnesses behind one framed pipe."""
