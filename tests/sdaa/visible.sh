# Sourced by tests/simulated/visible.sh.
variable=SDAA_VISIBLE_DEVICES
. "$2/tests/simulated/visible_numbers.sh"
