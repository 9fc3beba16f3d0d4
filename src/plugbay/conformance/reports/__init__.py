"""Results of a conformance run: values, text, JSON, JUnit XML, an HTML page and a badge."""
