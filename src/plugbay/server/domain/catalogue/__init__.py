"""The packages that come with the gateway, each in a folder of its own, as its publisher would have it."""
