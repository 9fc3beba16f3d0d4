"""A plugin that offers nothing and says who it is; broken: it says something else than its manifest does."""

from __future__ import annotations

from child import KIND, NAME, SERVES, Message, serve

PLUGIN = {"name": NAME, "version": "1.0.0", "abi_version": 2}
MANIFEST = {"plugin": {**PLUGIN, "description": ""}, "capabilities": {}}


def other_name(params: Message) -> Message:
    return {**PLUGIN, "name": "somebody"}


def other_version(params: Message) -> Message:
    return {**PLUGIN, "version": "1.0.1"}


def other_abi(params: Message) -> Message:
    return {**PLUGIN, "abi_version": 3}


def other_manifest(params: Message) -> Message:
    return {**PLUGIN, "manifest": {"plugin": {**PLUGIN, "version": "0.9.0"}}}


def nobody(params: Message) -> Message:
    return {}


def looks_it_up(params: Message) -> Message:
    import tomllib  # loading it takes as long as starting the interpreter

    with open(params["manifest_path"], "rb") as file:
        return {"manifest": tomllib.load(file)}


def well(params: Message) -> Message:
    return {**PLUGIN, "manifest": MANIFEST}


KINDS = {
    "other_name": other_name,
    "other_version": other_version,
    "other_abi": other_abi,
    "other_manifest": other_manifest,
    "nobody": nobody,
    "looks_it_up": looks_it_up,
}

SERVES["plugin/init"] = KINDS.get(KIND, well)
serve()
