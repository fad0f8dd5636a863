# The road of a vendor: the commands of docs/new_accelerator.md, as they stand there, from an empty folder to a passing report,
# against the installed package. Once with the plugin of examples/accelerator_extension in C++ and once with its twin in C, each
# found in the person's own folder.
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
skip() { echo "skipped: $1"; exit 77; }
command -v pkg-config >/dev/null || skip "pkg-config is not installed"
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$source/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
unset DS_ACCELERATOR ANYACCEL_PLUGIN_PATH ANYACCEL_CACHE_DIR XDG_CACHE_HOME
export CMAKE_PREFIX_PATH="$work/prefix" PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig" PATH="$work/prefix/bin:$PATH"
plugins=.local/lib/anyaccel/plugins
mkdir "$work/run"
cd "$work/run" || exit 1

# The page's blocks of commands, in files 1, 2, ...
awk '/^ *```sh$/ {n++; inside = 1; next} /^ *```$/ {inside = 0} inside {sub(/^   /, ""); print >("'"$work"'/block" n)}' \
  "$source/docs/new_accelerator.md"
[ "$(ls "$work"/block* | wc -l)" = 8 ] || fail "the page has $(ls "$work"/block* | wc -l) blocks of commands, this test knows 8"
run() {
  sh -eu "$work/block$1" >"$work/out" 2>"$work/err" ||
    fail "$language, commands $1: $(cat "$work/block$1" "$work/out" "$work/err")"
}
expect() { grep -qE -- "$1" "$work/out" || fail "$language: expected '$1' in: $(cat "$work/out" "$work/err")"; }
# Plugins and programs are built with the library's sanitizers.
flags=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
[ -z "$flags" ] || export CFLAGS="-O1 -g1 $flags" CXXFLAGS="-O1 -g1 $flags"

language=both
run 1
for language in cpp c; do
  export HOME="$work/home-$language"
  mkdir "$HOME"
  if [ $language = cpp ]; then run 2; else run 3; fi

  run 4  # info
  expect "^accelerator: acme \(Acme device, acme1\)"
  expect "acme .*usable .*\(plugin $HOME/$plugins/acme.so, priority 100\)"
  expect "^ *AcmeScaleBuilder +included"
  expect "^ *AcmeClipBuilder +compatible, built when first asked for"
  expect "^collectives +acmecl 1.0"
  expect "Plugins are looked for in ANYACCEL_PLUGIN_PATH \(not set\), $HOME/$plugins \(1 files?\), "

  run 5  # conformance
  expect "^[0-9]+ passed, 0 failed"
  expect "pass +one_member_gets_its_own"
  # With two devices: everything but messages, which this communicator leaves to the host.
  grep -A 1 "two_devices_in_one_process" "$work/out" | grep -q "group_begin is not implemented" ||
    fail "$language: the communicator of two devices: $(grep -A 2 two_devices_in_one_process "$work/out")"

  run 6  # generate: on acme, there with every call checked, on the CPU
  [ "$(wc -l <"$work/out")" -ge 3 ] || fail "$language: no text: $(cat "$work/out")"
  [ "$(sort -u "$work/out" | wc -l)" = 1 ] || fail "$language: acme writes another text than the CPU: $(cat "$work/out")"
  [ "$(grep -c "accelerator: acme" "$work/err")" = 2 ] || fail "$language: acme was not used: $(cat "$work/err")"

  run 7  # builders, ranks, an own class
  expect "^acme_clip +now"
  expect "^10 20 25 25$"
  expect "^2 ranks over acmecl: 3$"
  expect "^set_accelerator\(\), shm, 3$"
done

# Elsewhere its communicator is refused, and nothing else is taken silently.
DS_ACCELERATOR=cpu anyaccel launch --num_accelerators 2 build-program/use_acme ranks >"$work/out" 2>"$work/err" &&
  fail "acmecl on the CPU: $(cat "$work/out")"
grep -qF 'there is no backend "acmecl" for process groups of cpu. What could run: shm (inside one host)' "$work/err" ||
  fail "acmecl on the CPU: $(cat "$work/err")"

# The twins have one name, so who has both must choose.
for accelerator in "" acme; do
  DS_ACCELERATOR=$accelerator ANYACCEL_PLUGIN_PATH="$work/home-cpp/$plugins" anyaccel info >"$work/out" 2>"$work/err" &&
    fail "two plugins of one name are used: $(cat "$work/out")"
  grep -qF "\"$work/home-cpp/$plugins/acme.so\" and \"$work/home-c/$plugins/acme.so\"" "$work/err" ||
    fail "the files are not named: $(cat "$work/err")"
done

language=minimal
ln -s "$source/tests" "$source/include" .
run 8
expect "^[0-9]+ passed, 0 failed"
expect "^accelerator: xpu.external"
echo "accelerator extension: ok"
