"""Runs the scenarios of a contract against a plugin in any language.

scenario, template, patterns          the format: steps, the values that are filled in, the patterns of answers
dialects, facts                       the differences between contracts
surface, inputs                       the exports of a plugin, and an input for each
subject, conversation, trial          one process, one run of the steps, one scenario
plugin_runner, fixture_runner         all scenarios of a contract; all scenarios for an SDK
manifestless, manifests               a program without a manifest; manifests for the kit's own plugins
"""
