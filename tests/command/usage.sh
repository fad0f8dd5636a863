# Wrong usage gives exit code 2 and one clear line; help gives 0.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
err=$(mktemp)
trap 'rm -f "$err"' EXIT

expect() {  # code, text that standard error must hold, arguments...
  code=$1; text=$2; shift 2
  "$anyaccel" "$@" >/dev/null 2>"$err"
  got=$?
  [ $got = "$code" ] || fail "'$*' gave exit code $got, expected $code: $(cat "$err")"
  [ -z "$text" ] || grep -qF -- "$text" "$err" || fail "'$*' did not say '$text': $(cat "$err")"
}

expect 2 "usage"
expect 2 '"dance"' dance
expect 0 "" --help
expect 0 "" --version
for command in info generate bench conformance make-model; do expect 0 "" $command --help; done
expect 2 "--nonsense" info --nonsense
expect 2 "" bench nonsense
expect 2 "" bench --runs 0
expect 2 "" bench --runs -3
expect 2 "" generate
expect 1 "/nonexistent" generate --model /nonexistent --prompt x
expect 2 "" generate --model "$2/models/stories" --prompt x --max-new-tokens 0
expect 2 "" generate --model "$2/models/stories" --prompt x --max-new-tokens -5
expect 2 "" generate --model "$2/models/stories" --prompt x --temperature -1
expect 2 "" generate --model "$2/models/stories" --prompt x --top-p 1.5
expect 2 "" make-model

DS_ACCELERATOR=gpu expect 1 '"gpu" is not supported' info
DS_ACCELERATOR=hpu expect 1 'SynapseAI' info
ANYACCEL_CPU_ISA=mmx expect 1 'avx512' info
ANYACCEL_LAYERS=magic expect 1 'validate' info
echo "usage: ok"
