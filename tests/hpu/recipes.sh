# Recipes stay in the cache folder: a second process compiles none and writes the same text, and one that is damaged, or that is
# another's, is compiled again.
. "$(dirname "$0")/../simulated/common.sh"
export ANYACCEL_CACHE_DIR=$folder/cache

# How often the run compiled, and how often it read a recipe.
compiled() { grep -oE '"synGraphCompile": [0-9]+' "$report" | grep -oE '[0-9]+$'; }
read_back() { grep -oE '"synRecipeDeSerialize": [0-9]+' "$report" | grep -oE '[0-9]+$'; }

run || fail "without recipes: $(cat "$folder/err")"
check_report "without recipes"
whole=$(cat "$folder/out")
count=$(compiled)
[ "$count" -gt 3 ] || fail "$count recipes were compiled"
[ "$(read_back)" = 0 ] || fail "the first process has read recipes"
kept=$folder/cache/ops/hpu_recipes
[ "$(ls "$kept"/*.image | wc -l)" = "$count" ] || fail "$count recipes, and these files: $(ls "$kept")"

# $1: what was done; $2: how many are compiled again.
again() {
  run || fail "$1: $(cat "$folder/err")"
  check_report "$1"
  [ "$whole" = "$(cat "$folder/out")" ] || fail "$1: another text: $(cat "$folder/out")"
  [ "$(compiled)" = "$2" ] || fail "$1: $(compiled) recipes were compiled, not $2"
}
again "with recipes" 0
[ "$(read_back)" = "$count" ] || fail "with recipes: $(read_back) were read"
for file in "$kept"/*.image; do
  size=$(wc -c <"$file")
  case $((size % 3)) in
    0) : >"$file" ;;
    1) head -c $((size / 2)) "$file" >"$folder/cut" && cat "$folder/cut" >"$file" ;;
    *) printf 'x' | dd of="$file" bs=1 seek=$((size - 20)) conv=notrunc 2>"$folder/dd" ;;
  esac
done
again "with damaged recipes" "$count"
again "with mended recipes" 0
# What Synapse itself refuses is compiled again too, with a warning.
SIM_FAULT="fail:synRecipeDeSerialize,call=1" again "with a refused recipe" 1
grep -q 'compiling again, because of the kept image' "$folder/err" || fail "no warning: $(cat "$folder/err")"
# A decode step that chooses the likeliest token is one graph.
launches() { grep -oE '"synLaunchExt": [0-9]+' "$report" | grep -oE '[0-9]+$'; }
run --greedy --ignore-eos || fail "a greedy text: $(cat "$folder/err")"
before=$(launches) less=$tokens
tokens=$((tokens + 4))
run --greedy --ignore-eos || fail "a longer text: $(cat "$folder/err")"
[ $(($(launches) - before)) = 4 ] || fail "$(($(launches) - before)) launches for four steps"
tokens=$less
# A recipe that cannot be written is used all the same.
rm -r "$folder/cache"
SIM_FAULT="fail:synRecipeSerialize,call=1" again "with a recipe that cannot be kept" "$count"
[ "$(ls "$kept"/*.image | wc -l)" = $((count - 1)) ] || fail "not one recipe less: $(ls "$kept")"
echo "recipes: ok, $count"
