"""The conformance kit: does a plugin keep its contract, and does a host survive plugins that do not?

    scenario, template, matchers   conversations as data: the format, what is filled in, what counts as right
    inputs                         an input for a tool that nobody gave one for
    subject, conversation          one process of a plugin, and the steps of one scenario against it
    plugin_runner                  every scenario against one plugin
    host_runner, badplugins/       plugins that misbehave on purpose, and any host against them
    report                         what came out, for people, scripts and CI

Blind to the host and to the SDK of this package: a plugin in any language and a host of any maker can be
tested with it.
"""
