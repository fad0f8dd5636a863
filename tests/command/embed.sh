# embed: vectors of texts, as lines and as JSON; normalized ones; a file; what is refused.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
embed() { "$anyaccel" embed --model "$model" --quiet "$@"; }

embed --text "Once upon a time" --text "The cat" >"$folder/two" || fail "two texts"
[ "$(wc -l <"$folder/two")" = 2 ] || fail "two texts are not two lines"
printf 'The cat' >"$folder/text"
[ "$(embed --file "$folder/text")" = "$(sed -n 2p "$folder/two")" ] || fail "a file differs from the same text"
[ "$(embed --text "The cat" --pooling last)" != "$(sed -n 2p "$folder/two")" ] || fail "--pooling last changes nothing"
embed --text "The cat" --normalize --json >"$folder/json" || fail "--json"
python3 - "$folder/json" "$model/config.json" <<'PYTHON' || fail "--json: $(cat "$folder/json")"
import json, sys
result, config = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
(found,) = result["embeddings"]
assert len(found["embedding"]) == config["hidden_size"] and found["tokens"] > 0, found
assert abs(sum(x * x for x in found["embedding"]) - 1) < 1e-5, found
PYTHON
refused() {  # code, text, arguments...
  code=$1 part=$2
  shift 2
  embed "$@" >"$folder/out" 2>"$folder/err"
  [ $? = "$code" ] || fail "'$*' is not refused: $(cat "$folder/err")"
  grep -qF -- "$part" "$folder/err" || fail "'$*' does not say '$part': $(cat "$folder/err")"
}
refused 2 "no text" --pooling mean
WORLD_SIZE=2 refused 2 "embed runs in one process, and WORLD_SIZE is 2" --text x
refused 2 "--pooling is 'max'; expected mean or last" --text x --pooling max
refused 1 "the text has 0 tokens" --text "" --no-bos
echo "embed: ok"
