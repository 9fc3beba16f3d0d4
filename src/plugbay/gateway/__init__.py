"""vai's domain: who may do what, what is bound to whom, what follows from what happened.

Owns the rules. Refuses to know HTTP, which is `control`'s, and SQL, which is `store`'s.
"""
