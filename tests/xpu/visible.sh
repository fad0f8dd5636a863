# Sourced by tests/simulated/visible.sh: numbers of devices, or of a part of one ("0.0"), in any order and as often as one likes; the
# driver leaves out entries that are none. An empty mask is none.
variable=ZE_AFFINITY_MASK
shows_all '' 3
shows_all 0,1,2 3
shows_all 2,0 2
shows_all 1.0 1
shows 1,1 1 "all that the driver takes of $variable=\"1,1\""
shows 0,1,7 2 "all that the driver takes of $variable=\"0,1,7\""
shows 0,x,2 2 "all that the driver takes"
shows_none 7 "$variable is \"7\""
shows_none x "$variable is \"x\""
shows_none -1 "$variable is \"-1\""
