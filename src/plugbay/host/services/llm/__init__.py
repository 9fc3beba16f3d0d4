"""Language models for plugins: neutral chat values, the providers by name, and one over HTTP."""
