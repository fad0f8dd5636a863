# The variable that chooses among a vendor's devices: empty, wrong, in another order, with a device twice, with devices that are not
# there. How many devices the accelerator then shows, and what it says, is what the vendor's runtime makes of it. The cases are in
# tests/ACCELERATOR/visible.sh, the machine has three devices.
. "$(dirname "$0")/common.sh"
export SIM_DEVICES=3
unset SIM_REPORT

# $1: the value; sets $found to the line of the accelerator.
look() {
  export "$variable=$1"
  DS_ACCELERATOR=cpu "$anyaccel" info >"$folder/out" 2>"$folder/err" || fail "info with $variable=\"$1\": $(cat "$folder/err")"
  unset "$variable"
  found=$(grep -E "^  $accelerator +(usable|unusable|absent) " "$folder/out") || fail "info does not name $accelerator: $(cat "$folder/out")"
}
# $1: the value; $2: how many devices; $3: an expression that the line must match, if given.
shows() {
  look "$1"
  echo "$found" | grep -qE "usable .*\b$2 device\(s\)" || fail "$variable=\"$1\": not $2 devices: $found"
  echo "$found" | grep -qE "${3:-.}" || fail "$variable=\"$1\": expected '$3' in: $found"
}
# $1: the value, with which all devices that it names are shown, and nothing is said of it; $2: how many.
shows_all() {
  shows "$1" "$2"
  case $found in *$variable*) fail "$variable=\"$1\": a complaint without a cause: $found" ;; esac
}
# $1: the value; $2: an expression. No device is shown, and asking for the accelerator is one error that says why.
shows_none() {
  look "$1"
  echo "$found" | grep -qE "unusable .*$2" || fail "$variable=\"$1\": expected unusable and '$2' in: $found"
  whole=
  export "$variable=$1"
  run
  code=$?
  unset "$variable"
  check_error "$variable=\"$1\"" "$2" $code
}
. "$2/tests/$accelerator/visible.sh"
echo "visible: ok"
