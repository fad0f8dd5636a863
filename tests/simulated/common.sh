# Sourced by the tests that run the command on a simulated driver: sh TEST.sh ANYACCEL SOURCE BUILD ACCELERATOR. Sets $anyaccel,
# $model, $folder, $report, $accelerator and $sanitizer (that of the build, or empty), and defines fail, run and check_report.
# tests/ACCELERATOR/simulated.sh sets the environment that the accelerator needs, and skips (exit code 77, with the reason) where
# something is missing.
anyaccel=$1
accelerator=$4
sanitizer=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=//p' "$3/CMakeCache.txt")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The bundled model with two of its six layers: the same calls, fewer times.
model=$folder/model
mkdir "$model"
for file in model.safetensors tokenizer.json tokenizer_config.json generation_config.json; do
  ln -s "$2/models/stories/$file" "$model/$file"
done
sed 's/"num_hidden_layers": 6/"num_hidden_layers": 2/' "$2/models/stories/config.json" >"$model/config.json"
report=$folder/report.json
fail() { echo "FAILED: $1"; exit 1; }
export DS_ACCELERATOR=$accelerator SIM_REPORT=$report SIM_MEMORY=256m SIM_HANG_SECONDS=300 # sanitizers, a busy machine
# The backend by which ranks exchange tensors, and its library's function that sums them; empty: through the host, whatever is there.
communicator=
all_reduce=
# Options of the accelerator's runs besides the story's.
options=
# Not empty: the whole conformance suite passes in one process.
in_one_process=
# The number of the device that rank 1 of a machine uses.
second=1
. "$2/tests/$accelerator/simulated.sh"

# Some words of a story to $folder/out, messages to $folder/err. Gives the command's exit code.
run() {
  rm -f "$report"
  "$anyaccel" generate --model "$model" --prompt "Once upon a time" --max-new-tokens "$tokens" --seed 1 $options "$@" \
    >"$folder/out" 2>"$folder/err"
}

# $1: what was done. No violation and no leak.
check_report() {
  [ -s "$report" ] || fail "$1: the simulator wrote no report: $(cat "$folder/err")"
  tr -d ' \n' <"$report" | grep -q '"violations":\[\],"leaks":\[\]' || fail "$1: $(grep -vE '": [0-9]+,?$' "$report" | head -30)"
}

# $1: what was done; $2: an expression that the error must match. The run has ended with the code in $3, and the text is the
# beginning of $whole.
check_error() {
  [ "$3" = 1 ] || fail "$1: exit code $3: $(cat "$folder/err")"
  [ "$(grep -c 'anyaccel: error:' "$folder/err")" = 1 ] || fail "$1: not one error: $(cat "$folder/err")"
  grep 'anyaccel: error:' "$folder/err" | grep -qE "$2" || fail "$1: expected '$2' in: $(cat "$folder/err")"
  case $whole in
    "$(cat "$folder/out")"*) ;;
    *) fail "$1: the text is not the beginning of the story: $(cat "$folder/out")" ;;
  esac
}
