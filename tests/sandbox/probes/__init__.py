"""Attacks, as a program: `python3 -m probes AREA WORLD [ATTACK]`. Each public function of a module is one.

Runs inside a sandbox and outside of one, with nothing but the machine's own Python. An attack that succeeds returns
nothing; one that fails raises the OSError of the kernel or returns what it saw instead.
"""
