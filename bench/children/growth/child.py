"""A nexo echo child that is small: no import but `os`, and JSON by hand, so that 500 of them fit into a machine."""

from __future__ import annotations

import os

ID = os.path.basename(os.getcwd())
HELLO = (
    '{"manifest":{"plugin":{"id":"'
    + ID
    + '","version":"1.0.0"}},"server_version":"1","tools":[{"name":"'
    + ID
    + '_echo",'
    '"description":"Send the text back.","input_schema":{"type":"object"}}]}'
)


def answer(line: str) -> str:
    """The line for a request; empty for a notification."""
    if '"id":' not in line:
        return ""
    number = line.partition('"id":')[2].partition(",")[0].strip("} ")
    result = '{"ok":true}'
    if '"method":"initialize"' in line:
        result = HELLO
    elif '"method":"tool.invoke"' in line:
        text = line.partition('"text":"')[2].partition('"')[0]
        result = '{"text":"' + text + '"}'
    return '{"jsonrpc":"2.0","id":' + number + ',"result":' + result + "}\n"


def main() -> None:
    rest = ""
    while data := os.read(0, 65_536):
        *lines, rest = (rest + data.decode()).split("\n")
        os.write(1, "".join(map(answer, lines)).encode())


if __name__ == "__main__":
    main()
