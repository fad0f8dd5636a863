# Sourced by the visible.sh of a runtime whose variable $variable lists numbers in any order. The runtime reads up to the first entry
# that is no number or no device; a number that is there twice shows no device.
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
