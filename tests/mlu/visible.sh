# Sourced by tests/simulated/visible.sh: numbers in any order, read up to the first that is none or no device; one twice shows none.
variable=MLU_VISIBLE_DEVICES
rule='each once'
shows_all 0,1,2 3
shows_all 2,0 2
shows_all 1 1
shows 0,1,7 2 "all that the runtime takes of $variable=\"0,1,7\".*$rule"
shows 0,x,2 1 "all that the runtime takes.*$rule"
shows 0, 1 "all that the runtime takes.*$rule"
shows_none '' "$variable is \"\""
shows_none 7 "$variable is \"7\".*$rule"
shows_none x "$variable is \"x\".*$rule"
shows_none -1 "$variable is \"-1\".*$rule"
shows_none 1,1 "$variable is \"1,1\".*$rule"
