# A resident child that costs almost nothing itself: greets, waits, answers call 1, waits for the end of its input.
IFS= read -r hello || exit 0
printf '%s\n' '{"jsonrpc":"2.0","method":"hello","params":{}}'
IFS= read -r request || exit 0
printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":true}'
IFS= read -r rest
exit 0
