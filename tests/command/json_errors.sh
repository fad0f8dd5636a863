# With --json a command that fails prints one object, too: {"error": {"kind", "message"}} and the results it had, on standard
# output and nothing else there, with the exit code of the failure.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

expect() {  # code, kind of error, text of its message, arguments...
  code=$1; kind=$2; text=$3; shift 3
  "$anyaccel" "$@" >"$work/out" 2>"$work/err"
  got=$?
  [ $got = "$code" ] || fail "'$*' gave exit code $got, expected $code: $(cat "$work/err")"
  python3 -c '
import json, sys
kind, text = sys.argv[2:]
error = json.load(open(sys.argv[1]))["error"]
assert set(error) == {"kind", "message"}, error
assert error["kind"] == kind, error
assert text in error["message"], error
' "$work/out" "$kind" "$text" 2>"$work/python" || fail "'$*': $(cat "$work/out" "$work/python")"
  grep -qF -- "anyaccel: error: " "$work/err" || fail "'$*' says nothing on standard error"
}

for command in info "bench alloc" build-ops conformance "generate --model $model --prompt x"; do
  expect 2 usage "there is no option '--jsonn'" $command --json --jsonn
  expect 2 usage "there is no option '--nonsense'" $command --nonsense --json
done
expect 2 usage "--prompt" generate --json --model "$model" --prompt
expect 2 usage "--model is required" generate --json
expect 2 usage "--max-new-tokens is 'x'" generate --model "$model" --prompt x --max-new-tokens x --json
expect 2 usage "no prompt" generate --model "$model" --json
expect 1 error "it is a folder" generate --model "$model" --prompt-file "$work" --json
expect 1 checkpoint "/nonexistent" generate --model /nonexistent --prompt x --json
expect 1 invalid_argument "context" generate --model "$model" --prompt x --context 1 --json
expect 2 usage "matches no case" conformance --filter nonsense --json
expect 1 unavailable "--plugin" conformance --plugin /nope --json
expect 1 invalid_argument "nonsense" conformance --accelerator nonsense --json
expect 2 usage "there is no such op" build-ops --op nonsense --json
expect 1 build "DeepCompileBuilder" build-ops --op dc --json
DS_ACCELERATOR=gpu expect 1 invalid_argument '"gpu" is not supported' info --json
ANYACCEL_FALLBACK=perhaps expect 1 invalid_argument 'ANYACCEL_FALLBACK must be cpu' info --json
ANYACCEL_FALLBACK=perhaps expect 1 invalid_argument 'ANYACCEL_FALLBACK must be cpu' bench alloc --json

# Not of all ranks of a job: its first one speaks.
RANK=1 WORLD_SIZE=2 "$anyaccel" generate --json --model "$model" >"$work/out" 2>/dev/null
[ $? = 2 ] || fail "the second rank's usage error"
[ -s "$work/out" ] && fail "the second rank prints an object: $(cat "$work/out")"

# The results before the failure are reported along with it.
mkdir "$work/empty"
expect 1 checkpoint "config.json" bench alloc decode --runs 1 --seconds 0.01 --model "$work/empty" --json
python3 -c '
import json, sys
names = [r["name"] for r in json.load(open(sys.argv[1]))["results"]]
assert "alloc.pair" in names, names
' "$work/out" || fail "the results before the failure are lost: $(cat "$work/out")"

CXX=/no/such/compiler expect 1 unavailable "/no/such/compiler" bench jit --runs 1 --json
expect 1 invalid_argument 'there is no op builder "NoBuilder"' bench jit --builder NoBuilder --runs 1 --json

# A success has no error; a list of cases is an object too.
"$anyaccel" generate --model "$model" --prompt x --max-new-tokens 2 --json >"$work/out" 2>/dev/null || fail "generate --json"
python3 -c 'import json, sys; assert "error" not in json.load(open(sys.argv[1]))' "$work/out" || fail "a success with an error"
"$anyaccel" conformance --list --json >"$work/out" 2>/dev/null || fail "conformance --list --json"
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["cases"]) > 100' "$work/out" || fail "the list of cases"
echo "json errors: ok"
