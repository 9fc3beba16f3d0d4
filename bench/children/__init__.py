"""Programs that the comparisons start as children. None of them is imported."""
