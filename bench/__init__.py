"""Benchmarks: the cost of plugbay, compared with the floor and with alternatives."""
