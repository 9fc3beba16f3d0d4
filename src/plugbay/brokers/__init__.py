"""The bus of one host joined with those of others, through a server that all of them reach."""
