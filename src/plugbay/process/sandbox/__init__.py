"""Confinement: what a plugin's process can see, reach and use up.

`policy` says what, as plain values that come from manifests and the operator; everything else here makes it hold.
"""
