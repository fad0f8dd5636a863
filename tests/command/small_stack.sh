# Commands work with a small limit on the stack (ulimit -s), also with a template that nests as deep as it may.
anyaccel=$1
source=$2
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "Once upon a time" >"$work/prompt"
cp -r "$source/models/stories" "$work/nested"
echo '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}' >"$work/nested/chat_template.jinja"
# The stack also holds the environment, which varies, so that only what the command needs is passed on. With a job's rank in it the
# command would not be alone.
within() {  # option of ulimit, KiB, arguments of the command...
  (
    ulimit "$1" "$2" || exit 1
    shift 2
    exec env -i PATH="$PATH" HOME="$work" DS_ACCELERATOR=cpu ANYACCEL_CACHE_DIR="$work/cache" OMP_NUM_THREADS=2 "$anyaccel" "$@"
  ) >"$work/out" 2>"$work/err"
}
for limit in "-s 32" "-s 64" "-s 128" "-s 256" "-Ss 32"; do
  within $limit info || fail "$limit: info: $(tail -3 "$work/err")"
  within $limit generate --model "$source/models/stories" --prompt-file "$work/prompt" --max-new-tokens 40 \
    || fail "$limit: generate: $(tail -3 "$work/err")"
  within $limit launch --num_accelerators 2 "$anyaccel" generate --model "$source/models/stories" --prompt Once --max-new-tokens 8 \
    || fail "$limit: launch: $(tail -3 "$work/err")"
  within $limit chat --model "$work/nested" <"$work/prompt" && fail "$limit: chat took the template"
  grep -q "nested more than 1000 deep" "$work/err" || fail "$limit: chat: $(tail -3 "$work/err")"
done
echo "small stacks: ok"
