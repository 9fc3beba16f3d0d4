"""Plugins that misbehave on purpose, to test any host with.

`programs/<contract>/` holds one program per contract and `catalog.json`, which lists its cases: what each does wrong,
how a host triggers it and what the host must do. `programs/light_json.py` keeps the start of these programs fast.
"""
