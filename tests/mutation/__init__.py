"""Mutation testing of modules that decide: each small change of such a module must fail its mirrored tests."""
