# zsh's completion knows the commands, the options and the benchmarks of the command that runs: completion_zsh.sh ANYACCEL SOURCE
anyaccel=$1
source_folder=$2
fail() { echo "FAILED: $*"; exit 1; }
command -v zsh >/dev/null || { echo "skipped: zsh is not installed"; exit 77; }

# complete_words WORD...: what is put forward for the last word. Functions of these names stand in for those of zsh's completion, which
# work in a terminal only.
complete_words() {
  zsh -f -c '
    compadd() { shift; print -r -- $*; }
    _describe() { print -r -- ${(P)2}; }
    _files() { print -r -- files; }
    completion=$1; shift; words=("$@"); CURRENT=$#; set --
    source $completion' zsh "$source_folder/completions/_anyaccel" "$anyaccel" "$@" 2>&1
}
for command in info generate chat quantize perplexity embed tokenize launch bench build-ops conformance make-model; do
  case " $(complete_words "")" in *" $command:"*) ;; *) fail "$command is not among: $(complete_words "")" ;; esac
done
case " $(complete_words generate --m) " in *" --model "*) ;; *) fail "generate --m: $(complete_words generate --m)" ;; esac
case " $(complete_words bench ada) " in *" adam "*) ;; *) fail "bench ada: $(complete_words bench ada)" ;; esac
[ "$(complete_words bench --model x)" = files ] || fail "bench --model x: $(complete_words bench --model x)"
[ "$(complete_words generate --model x)" = files ] || fail "generate --model x: $(complete_words generate --model x)"
echo "completion_zsh: ok"
