# A model whose logits hold a NaN ends `anyaccel generate` with exit code 1 and one message, on one rank or several.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE MASTER_ADDR MASTER_PORT

# The weights of the model, all bits set: a NaN in every float format.
cp "$model"/*.json "$folder"
file=$model/model.safetensors
header=$(($(od -An -tu8 -N8 "$file") + 8))
size=$(wc -c <"$file")
{ head -c "$header" "$file"; head -c $((size - header)) /dev/zero | tr '\0' '\377'; } >"$folder/model.safetensors"

message="generation stopped: the model's logits for sequence 0, position"
check() {  # what ran
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code, expected 1: $(cat "$folder/err")"
  [ "$(grep -cF "$message" "$folder/err")" = 1 ] || fail "$1 does not say once what is wrong: $(cat "$folder/err")"
}
for sampling in --greedy "--temperature 0.8"; do
  "$anyaccel" generate --model "$folder" --prompt "Once" $sampling >"$folder/out" 2>"$folder/err"
  check "$sampling"
done
timeout 120 "$anyaccel" launch --num_accelerators 2 "$anyaccel" generate --model "$folder" --prompt "Once" \
  >"$folder/out" 2>"$folder/err"
check "two ranks"
echo "invalid_logits: ok"
