# Every function of the vendor's that the driver binds ($bound) fails once, at its first call: the story is generated
# all the same, or there is one error that names the function or the code that it returned ($any_error).
. "$(dirname "$0")/common.sh"
tokens=1
run || fail "without a fault: $(cat "$folder/err")"
whole=$(cat "$folder/out")
told=0
for name in $bound; do
  SIM_FAULT="fail:$name,call=1" run
  code=$?
  if [ $code = 0 ]; then
    [ "$whole" = "$(cat "$folder/out")" ] || fail "$name: another text: $(cat "$folder/out")"
    told=$((told + 1))
  else
    check_error "$name" "$name|$any_error" $code
  fi
  # An object that could not be destroyed is left over even when its context is destroyed; no other rule is broken.
  if [ -s "$report" ] && grep -oE '"kind": "[a-z-]+"' "$report" | grep -qv destroyed-in-use; then
    fail "$name: $(head -20 "$report")"
  fi
done
[ "$told" -lt "$(echo "$bound" | wc -l)" ] || fail "no failure was noticed"
echo "calls: ok, $(echo "$bound" | wc -l) functions, $told failures survived"
