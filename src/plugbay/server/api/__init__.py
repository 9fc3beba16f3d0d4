"""The REST API: parses requests, checks permissions and rates, calls the gateway, formats answers. No domain rules."""
