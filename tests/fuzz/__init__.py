"""Coverage-guided fuzzing of everything that reads hostile bytes, and the replay of its corpus."""
