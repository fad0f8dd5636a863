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
RANK=0 WORLD_SIZE=2 refused 2 "embed runs in one process, and this one belongs to a job of 2 ranks" --text x
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 refused 2 "belongs to a job of 3 ranks" --text x
WORLD_SIZE="" embed --text x >"$folder/alone" 2>"$folder/err" || fail "an empty WORLD_SIZE is refused: $(cat "$folder/err")"
RANK=0 WORLD_SIZE=1 embed --text x >"$folder/one" 2>"$folder/err" || fail "a job of one is refused: $(cat "$folder/err")"
cmp -s "$folder/alone" "$folder/one" || fail "a job of one has another result"
refused 2 "--pooling is 'max'; expected mean or last" --text x --pooling max
refused 1 "the text has 0 tokens" --text "" --no-bos
echo "embed: ok"
