"""The conformance kit: does a plugin keep its contract, and does a host survive plugins that break it?

    engine/         runs scenarios, which are conversations written down as data, against any plugin
    scenarios/      the scenarios of each contract, as JSON
    reports/        the results: text, JSON, JUnit XML, an HTML page, a badge
    replay/         recordings: played to a plugin, or played back to a host in place of the plugin
    bad_plugins/    plugins that misbehave on purpose, and a runner that tries any host with them

`bad_plugins` and `replay` use `engine`; all use `reports`. None of them imports the host or the SDK.
"""
