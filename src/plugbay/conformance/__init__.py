"""The conformance kit: does a plugin keep its contract, and does a host survive plugins that do not?

    scenario, steps, template, matchers   conversations as data: the format, what is filled in, what counts as right
    comparing                             what operators of patterns are made of: topics, paths, payloads, chunks
    dialects                              what differs between contracts, and the host that stands by
    inputs, surface, ainb_facts           an input for a tool that nobody gave one for, and what a plugin offers
    subject, conversation, trial          one process, one turn of a scenario with it, all turns of a scenario
    endings                               why a conversation ends before its last step
    plugin_runner, fixture_runner         every scenario against one plugin, or against the fixture of an SDK
    introduction                          a program without a manifest, taken at its word
    rounds, axes                          which of them are tried together, and which axes they are checks of
    catalogue, badplugins/, host_runner   plugins that misbehave on purpose, and any host against them
    handouts                              the same for strangers: a command line, and what a host must do, in words
    canaries, programs                    for each axis a plugin that keeps it and ways to break it, and its folder
    report, page, badge                   what came out, for people, scripts and CI, and to publish
    speech, exchanges, contents           what is in a recording: who asked what, and what followed from it
    mock_plugin, stdio_replay, mock_host  a recording in the place of a plugin, or of a host
    differences, renewal, truth           what counts as the same, what is new every time, where a replay would lie

Blind to the host and to the SDK of this package: a plugin in any language and a host of any maker can be
tested with it.
"""
