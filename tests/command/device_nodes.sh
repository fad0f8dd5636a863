# Device nodes of vendors without what belongs to them: without the vendor's library, with one that is for linking only,
# with one that is too old, and with nodes that this user may not open. `info` and DS_ACCELERATOR say so, and detection
# falls back to the CPU. Run as: sh device_nodes.sh ANYACCEL SOURCE BUILD. The nodes are files in a /dev of a namespace
# of its own.
anyaccel=$1
build=$3
if [ -z "$ANYACCEL_TEST_NAMESPACE" ]; then
  export ANYACCEL_TEST_NAMESPACE=1
  command -v setpriv >/dev/null && command -v unshare >/dev/null || { echo "skipped: unshare or setpriv is not installed"; exit 77; }
  [ "$(id -u)" = 0 ] || user=-Ur
  unshare $user -m true 2>/dev/null || { echo "skipped: this user may not make namespaces"; exit 77; }
  exec unshare $user -m --propagation private sh "$0" "$@"
fi
folder=$(mktemp -d)
trap 'umount -l /dev; umount "$folder"/dev/null "$folder"/dev/zero "$folder"/dev/urandom; rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; exit 1; }
mkdir "$folder/dev"
for node in null zero urandom; do
  touch "$folder/dev/$node"
  mount --bind "/dev/$node" "$folder/dev/$node" || { echo "skipped: nothing can be mounted here"; exit 77; }
done
mkdir "$folder/dev/shm"
nodes="npu:davinci0 sdaa:tcaicard0 hpu:hl0 mlu:cambricon_dev0 cuda:nvidiactl"
for pair in $nodes; do touch "$folder/dev/${pair#*:}"; done
mount --rbind "$folder/dev" /dev || { echo "skipped: nothing can be mounted here"; exit 77; }
unset DS_ACCELERATOR ANYACCEL_PLUGIN_PATH ANYACCEL_NPU_LIBRARY_PATH ANYACCEL_SDAA_LIBRARY_PATH ANYACCEL_HPU_LIBRARY_PATH \
  ANYACCEL_MLU_LIBRARY_PATH ANYACCEL_CUDA_LIBRARY_PATH
export HOME=$folder

# A user without rights of root's, whom the owner's permissions bind.
as_person() { setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"; }
# $1: what was done; for each further pair, ACCELERATOR and an expression: how info and a request refuse it.
refuses() {
  what=$1
  shift
  as_person "$anyaccel" info >"$folder/out" 2>"$folder/err" || fail "$what: info: $(cat "$folder/err")"
  grep -q '^accelerator: cpu ' "$folder/out" || fail "$what: not the CPU: $(head -5 "$folder/out")"
  grep -q 'Setting accelerator to CPU' "$folder/err" || fail "$what: no warning: $(cat "$folder/err")"
  while [ $# -gt 0 ]; do
    grep -E "^  $1 +unusable +" "$folder/out" | grep -qE "$2" || fail "$what: info: expected '$2' in: $(grep "^  $1 " "$folder/out")"
    DS_ACCELERATOR=$1 as_person "$anyaccel" info >"$folder/asked" 2>&1
    code=$?
    [ $code = 1 ] || fail "$what: DS_ACCELERATOR=$1: exit code $code: $(cat "$folder/asked")"
    words="$(echo "$1" | tr a-z A-Z)_Accelerator requires .*: DS_ACCELERATOR asks for \"$1\", which is unusable on this machine: .*$2"
    grep -qE "error: $words" "$folder/asked" || fail "$what: DS_ACCELERATOR=$1: expected '$words' in: $(cat "$folder/asked")"
    shift 2
  done
}

refuses "without a library" \
  npu '/dev/davinci0 is there, but no CANN: looked for libascendcl.so in .*install CANN' \
  sdaa "/dev/tcaicard0 is there, but no SDAA runtime: looked for libsdaart.so in .*install Tecorigin's software" \
  hpu "/dev/hl0 is there, but no Synapse: looked for libSynapse.so in .*install Habana's software" \
  mlu '/dev/cambricon_dev0 is there, but no Neuware: looked for libcnrt.so in ' \
  cuda '/dev/nvidiactl is there, but .*install the NVIDIA driver'

# Libraries that have none of the functions: in a folder for linking, where they are not opened, and in another one.
# $1: the folder, in which they are to be found.
put_libraries() {
  mkdir -p "$folder/$1"
  for pair in npu:libascendcl.so sdaa:libsdaart.so hpu:libSynapse.so mlu:libcnrt.so; do
    cp "$build/tests/plugins/no_entry.so" "$folder/$1/${pair#*:}" || fail "there is no library to copy"
    export "ANYACCEL_$(echo "${pair%:*}" | tr a-z A-Z)_LIBRARY_PATH=$folder/$1"
  done
}
put_libraries lib/devlib
refuses "for linking" npu "$folder/lib/devlib/libascendcl.so is for linking only"
put_libraries lib/stubs
refuses "for linking" \
  sdaa "$folder/lib/stubs/libsdaart.so is for linking only" \
  hpu "$folder/lib/stubs/libSynapse.so is for linking only" \
  mlu "$folder/lib/stubs/libcnrt.so is for linking only"
put_libraries old
refuses "too old" \
  npu 'CANN .*lacks the function acl.*; install CANN 8.0 or later' \
  sdaa "SDAA runtime .*lacks the function sdaa.*; install a later release" \
  hpu 'Synapse .*lacks the function syn.*; install a later release' \
  mlu 'Neuware .*lacks the function cnrt.*; install '

# A person who may not open the nodes: whatever library there is.
for pair in $nodes; do chmod 0 "$folder/dev/${pair#*:}"; done
# Render nodes are any vendor's: only with Intel's loader is something amiss.
mkdir "$folder/dev/dri"
touch "$folder/dev/dri/renderD128"
chmod 0 "$folder/dev/dri/renderD128"
xpu=
PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -q libze_loader.so.1 &&
  xpu='level_zero: this user may not open /dev/dri/renderD128; add it to the group of these files'
refuses "without permission" \
  npu 'this user may not open /dev/davinci0; add it to the group of these files .usually HwHiAiUser.' \
  sdaa 'this user may not open /dev/tcaicard0; ' \
  hpu 'this user may not open /dev/hl0; see who may open these files' \
  mlu 'this user may not open /dev/cambricon_dev0; ' \
  cuda 'this user may not open /dev/nvidiactl; see who may open these files' \
  ${xpu:+xpu "$xpu"}

# An AMD GPU. ROCm is Debian's where that is installed.
rm "$folder/dev/nvidiactl"
touch "$folder/dev/kfd"
if PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -q libamdhip64.so; then
  refuses "ROCm without a device" cuda \
    'ROCm is there .*, but no AMD GPU that it can use: hipInit gives .*; see that this user may open /dev/kfd and /dev/dri/renderD'
  chmod 0 "$folder/dev/kfd"
  refuses "ROCm without permission" cuda 'this user may not open /dev/kfd; add it to the group of this file .usually render.'
else
  as_person "$anyaccel" info >"$folder/out" 2>"$folder/err" || fail "an AMD GPU without ROCm: info: $(cat "$folder/err")"
  grep -qE '^  cuda +absent .*/dev/kfd is there, but .*libamdhip64.*; install ROCm' "$folder/out" ||
    fail "an AMD GPU without ROCm: $(cat "$folder/out")"
fi
mkdir "$folder/rocm"
cp "$build/tests/plugins/no_entry.so" "$folder/rocm/libamdhip64.so.6"
export ANYACCEL_CUDA_LIBRARY_PATH=$folder/rocm
refuses "ROCm too old" cuda "libamdhip64.so.6 .*lacks"
echo "device nodes: ok"
