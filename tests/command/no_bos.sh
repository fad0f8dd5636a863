# The tokenizer puts its beginning-of-text token before every prompt, also before one that has it already, as transformers
# does; --no-bos leaves the prompt as it is. Special tokens written in a prompt are tokens.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
ids() {  # arguments... : the ids of the prompt, on one line
  "$anyaccel" generate --model "$model" --max-new-tokens 1 --json --quiet "$@" |
    sed -n '/"prompt_ids": \[/,/\]/p' | tr -d ' \n' | sed 's/.*\[//; s/\].*//'
}

plain=$(ids --no-bos --prompt "Once upon a time")
[ -n "$plain" ] || fail "no ids came out"
[ "$(ids --prompt "Once upon a time")" = "0,$plain" ] || fail "the beginning-of-text token is not added"
[ "$(ids --prompt "<|begin_of_text|>Once upon a time")" = "0,0,$plain" ] || fail "a prompt with the token gets no second one"
[ "$(ids --no-bos --prompt "<|begin_of_text|>Once upon a time")" = "0,$plain" ] || fail "--no-bos added something"
[ "$(ids --no-bos --prompt "Once upon a time<|end_of_text|>")" = "$plain,1" ] || fail "<|end_of_text|> is no token"
echo "no_bos: ok"
