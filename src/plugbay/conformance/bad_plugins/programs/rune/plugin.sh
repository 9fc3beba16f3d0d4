#!/bin/sh
# Every bad plugin of rune but those of plugin.py: the first argument names a case.
#
# A case does one thing wrong and everything else right. `catalog.json` says what each case does and what a host must do.
# A case of data changes the handshake or the response below; the others are lives of their own at the end.

kind=$1

# The handshake.

id='"plugin_id":"bad.plugin",'
version='1.0.0'
protocol='rterm.plugin.v1'
tools=',"exposed_tools":["bad.tool"]'
capabilities=',"capabilities":[]'
type='handshake'
more=''
hello='' # in place of the whole line
end='\n'

case $kind in
good) id='"plugin_id":"good.plugin",' tools=',"exposed_tools":["good.tool"]' ;;
capabilities_empty | command_not_executable) ;; # the usual handshake
capabilities_missing) capabilities='' ;;
capabilities_null) capabilities=',"capabilities":null' ;;
capability_all) capabilities=',"capabilities":["b","a"]' ;;
capability_beyond_grants) capabilities=',"capabilities":["a","z"]' ;;
capability_blank) capabilities=',"capabilities":["a"," "]' ;;
capability_order_beyond_first) capabilities=',"capabilities":["z","z"]' ;;
capability_order_repeated_first) capabilities=',"capabilities":["a","a","z"]' ;;
capability_other_case) capabilities=',"capabilities":["A"]' ;;
capability_padded) capabilities=',"capabilities":[" a"]' ;;
capability_repeated) capabilities=',"capabilities":["a","a"]' ;;
capability_subset | capability_with_no_grants) capabilities=',"capabilities":["a"]' ;;
crlf) end='\r\n' ;;
exposed_tools_empty) tools=',"exposed_tools":[]' ;;
exposed_tools_missing) tools='' ;;
exposed_tools_null) tools=',"exposed_tools":null' ;;
extra_fields) capabilities=',"capabilities":[],"homepage":"x"' more=',"mood":[1]' ;;
handshake_array) hello='[]' ;;
handshake_empty_object) hello='{}' ;;
handshake_field_type) tools=',"exposed_tools":"bad.tool"' ;;
handshake_id_number) id='"plugin_id":5,' ;;
handshake_not_json) hello='hello there' ;;
handshake_null) hello='null' ;;
handshake_scalar) hello='1' ;;
handshake_wrong_type) type='response' ;;
manifest_missing) hello='{"type":"handshake"}' ;;
manifest_null) hello='{"type":"handshake","manifest":null}' ;;
plugin_id_blank) id='"plugin_id":" ",' ;;
plugin_id_different) id='"plugin_id":"other.plugin",' ;;
plugin_id_missing) id='' ;;
plugin_id_padded) id='"plugin_id":" bad.plugin ",' ;;
plugin_version_blank) version='' ;;
tool_absent) tools=',"exposed_tools":["other.tool"]' ;;
tool_absent_and_capability_beyond) tools=',"exposed_tools":["other.tool"]' capabilities=',"capabilities":["z"]' ;;
tool_padded) tools=',"exposed_tools":[" bad.tool"]' ;;
upper_case_handshake_keys) id='"PLUGIN_ID":"bad.plugin",' ;;
version_different) protocol='rterm.plugin.v2' ;;
version_different_and_more) id='"plugin_id":"",' version='' protocol='rterm.plugin.v0' tools=',"exposed_tools":[]' ;;
version_padded) protocol=' rterm.plugin.v1 ' ;;
esac

manifest="{$id\"plugin_version\":\"$version\",\"protocol_version\":\"$protocol\"$tools$capabilities}"
[ -n "$hello" ] || hello="{\"type\":\"$type\",\"manifest\":$manifest$more}"

# The response: a format for printf, which puts the id of the request in place of %s.

ok='{"type":"response","request_id":"%s","status":"ok","output":{"said":"hello"}}'
response=$ok

case $kind in
error_missing) response='{"type":"response","request_id":"%s","status":"error"}' ;;
error_then_exit_3 | error_then_hang)
    response='{"type":"response","request_id":"%s","status":"error","error":{"code":"out_of_order","message":"not today"}}'
    ;;
error_with_blank_message)
    response='{"type":"response","request_id":"%s","status":"error","error":{"code":"x","message":"  "}}'
    ;;
error_without_code)
    response='{"type":"response","request_id":"%s","status":"error","error":{"message":"something is wrong"}}'
    ;;
error_without_message) response='{"type":"response","request_id":"%s","status":"error","error":{"code":"x"}}' ;;
extra_fields) response="${ok%\}},\"structured\":null,\"error_code\":7}" ;;
invalid_utf8) response='{"type":"response","request_id":"%s","status":"ok","output":"caf\351"}' ;;
metadata_not_object)
    response='{"type":"response","request_id":"%s","status":"ok","output":{},"metadata":"none"}'
    ;;
metadata_object) response="${ok%\}},\"metadata\":{\"took_ms\":3}}" ;;
no_output) response='{"type":"response","request_id":"%s","status":"ok"}' ;;
null_output) response='{"type":"response","request_id":"%s","status":"ok","output":null}' ;;
ok_with_empty_error) response='{"type":"response","request_id":"%s","status":"ok","output":{},"error":{}}' ;;
ok_with_error)
    response='{"type":"response","request_id":"%s","status":"ok","error":{"code":"x","message":"half wrong"}}'
    ;;
ok_with_null_error) response="${ok%\}},\"error\":null}" ;;
request_id_different)
    response='{"type":"response","request_id":"plugin_req_0000000000000000","status":"ok","output":{}}'
    ;;
request_id_missing) response='{"type":"response","status":"ok","output":{}}' ;;
response_array) response='[]' ;;
response_nan) response='{"type":"response","request_id":"%s","status":"ok","output":NaN}' ;;
response_not_json) response='all done' ;;
response_null) response='null' ;;
response_two_objects) response="$ok {}" ;;
response_wrong_type) response='{"type":"result","request_id":"%s","status":"ok","output":{"said":"hello"}}' ;;
scalar_output) response='{"type":"response","request_id":"%s","status":"ok","output":42}' ;;
status_missing) response='{"type":"response","request_id":"%s","output":{}}' ;;
status_upper_case) response='{"type":"response","request_id":"%s","status":"OK","output":{}}' ;;
upper_case_response_keys) response='{"type":"response","request_id":"%s","STATUS":"ok","OUTPUT":{}}' ;;
esac

# The steps of a life.

read_greeting() { read -r greeting; }
greet() { printf '%s'"$end" "$hello"; }
read_request() {
    read -r request
    id=${request#*'"request_id":"'}
    id=${id%%'"'*}
}
# shellcheck disable=SC2059 # a response is a format: for the id, and for bytes that are no text
respond() { printf "$response$end" "$id"; }
await_end() { while read -r rest; do :; done; }
hang() { exec /bin/sleep 600; }
reach() {
    : >reached
    hang
}

# Lives that differ from the usual one.

case $kind in
blank_line_first) printf '\n' ;;
exit_before_handshake) exit 0 ;;
grandchild_holds_stdout) /bin/sleep 600 & ;;
handshake_unasked) greet ;;
ignores_term) trap '' TERM INT HUP ;;
log_line_first) echo 'starting up, please wait' ;;
never_reads)
    greet
    hang
    ;;
esac

read_greeting
case $kind in
byte_order_mark_first) printf '\357\273\277' ;;
cancelled_in_handshake) reach ;;
exit_3_before_handshake)
    echo 'cannot go on' >&2
    exit 3
    ;;
half_handshake)
    printf '%s' '{"type":"handshake","manifest":{"plugin_id":"bad.plugin","pl'
    exit
    ;;
killed_before_handshake) kill -9 $$ ;;
silent_handshake) hang ;;
stdout_closed_before_handshake)
    exec 1>&-
    hang
    ;;
esac

[ "$kind" = handshake_unasked ] || greet
case $kind in
exit_before_request) exit 0 ;;
extra_line_after_handshake) echo '{"type":"log","message":"ready"}' ;;
blank_line_first | byte_order_mark_first | log_line_first | exposed_tools_* | handshake_[!u]* | manifest_* | \
    plugin_id_* | plugin_version_blank | tool_* | upper_case_handshake_keys | version_different*)
    await_end # nothing good can come of such a handshake
    exit
    ;;
esac

read_request
case $kind in
cancelled_in_call) reach ;;
exit_before_response) exit 0 ;;
half_response)
    printf '{"type":"response","request_id":"%s","status":"ok","out' "$id"
    exit
    ;;
killed_before_response) kill -9 $$ ;;
no_newline_at_the_end) end='' ;;
silent_response) hang ;;
stdout_closed_before_response)
    exec 1>&-
    hang
    ;;
esac

respond
case $kind in
error_then_hang | lingers_after_ok) hang ;;
exit_3_right_after_ok) exit 3 ;;
ignores_term) while :; do /bin/sleep 1; done ;;
no_newline_at_the_end) exec 1>&- ;;
small_output_after_ok) echo 'good bye' ;;
esac

await_end
case $kind in
cancelled_in_teardown) reach ;;
error_then_exit_3 | exit_3_after_ok) exit 3 ;;
killed_after_ok) kill -9 $$ ;;
esac
