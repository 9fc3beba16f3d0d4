"""Manifest, grants and operator become a sandbox policy; what the host protects and watches."""
