# tools/gpu_check runs to its end on the simulated cuda, from the tarball, and writes what it found; without a device it says
# why.
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
[ -d "$build/tested_package" ] || { echo "skipped: no tarball of the test package/tarball, or not build/release"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$source/tools/gpu_check" --simulator "$build/simulators/cuda" \
  --package "$build"/tested_package/anyaccel-*.tar.xz --seconds 1700 --out "$folder" >"$folder/log" 2>&1 ||
  fail "$(cat "$folder/log")"
python3 - "$folder"/*-gpu-check-simulator.json <<'P' || fail "$(cat "$folder/log")"
import json, sys
report = json.load(open(sys.argv[1]))
wrong = [stage for stage in report["stages"] if stage["state"] not in ("passed", "skipped")]
names = {figure["name"] for figure in report["figures"]}
missing = {"decode.bandwidth 1b", "prefill.flops 8b", "copy.copy", "launch.kernel", "start.device", "adam.bandwidth",
           "quant.int8", "jit.warm"} - names
skipped = [stage["name"] for stage in report["stages"] if stage["state"] == "skipped"]
if wrong or missing or not report["simulated"] or not report["passed"] or len(report["logits"]) < 3:
    sys.exit(f"stages {wrong}, figures missing {missing}")
if any("PyTorch" not in name for name in skipped):
    sys.exit(f"skipped {skipped}")
P
python3 "$source/tools/gpu_check" --table "$folder"/*-gpu-check-simulator.json | grep -q '^| decode.bandwidth 1b' ||
  fail "no table"
echo "gpu_check: ok"
