"""vai's domain: who may do what, what is bound to whom, what follows from what happened.

Owns the rules. HTTP belongs to `server.api`, SQL to `store`.
"""
