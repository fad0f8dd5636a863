# `anyaccel launch` in a folder that anybody can write, with a .deepspeed_env in it: ranks do not get its variables.
anyaccel=$1
umask 022
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $1"; cat "$dir/err"; exit 1; }
mkdir "$dir/home" "$dir/open"
export HOME="$dir/home"
unset DS_ENV_FILE
echo 'LAUNCH_HOME=1' >"$HOME/.deepspeed_env"
echo 'LAUNCH_OPEN=secret' >"$dir/open/.deepspeed_env"
chmod 777 "$dir/open"
cd "$dir/open" || exit 1
ranks() {
  "$anyaccel" launch --num_accelerators 1 "$@" sh -c 'echo "home $LAUNCH_HOME open $LAUNCH_OPEN"' >"$dir/out" 2>"$dir/err" ||
    fail "exit code $?"
}
ranks
grep -qx 'home 1 open ' "$dir/out" || fail "a rank has: $(cat "$dir/out")"
grep -qF ".deepspeed_env is not read, because $(pwd -P) can be written by everybody (mode 777)" "$dir/err" || fail "no warning"
grep -qF "/home/.deepspeed_env sets LAUNCH_HOME for the ranks" "$dir/err" || fail "what is read is not said"
chmod 755 .
ranks
grep -qx 'home 1 open secret' "$dir/out" || fail "a rank has: $(cat "$dir/out")"
! grep -qF secret "$dir/err" || fail "a value is printed"
ranks --no_env_file
grep -qx 'home  open ' "$dir/out" || fail "--no_env_file: a rank has: $(cat "$dir/out")"
ranks --no-env-file -q
[ ! -s "$dir/err" ] || fail "--quiet is not quiet"
echo "env files: ok"
