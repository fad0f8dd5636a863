#!/bin/bash
# bash's completion knows the commands and the options of the command that runs: completion.sh ANYACCEL SOURCE MODEL
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
anyaccel=$1
source_folder=$2
fail() { echo "FAILED: $*"; exit 1; }
PATH=$(dirname "$anyaccel"):$PATH
# shellcheck disable=SC1091
. "$source_folder/completions/anyaccel"

complete_words() {  # the words of a command line; the last one is being written
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  _anyaccel
  echo "${COMPREPLY[*]}"
}
[ "$(complete_words anyaccel gen)" = generate ] || fail "gen: $(complete_words anyaccel gen)"
for command in info generate chat quantize perplexity embed tokenize launch bench build-ops conformance make-model; do
  case " $(complete_words anyaccel "") " in *" $command "*) ;; *) fail "$command is not among the commands" ;; esac
  case " $(complete_words anyaccel $command --) " in *" --help "*) ;; *) fail "$command has no --help" ;; esac
done
case " $(complete_words anyaccel generate --m) " in *" --model "*) ;; *) fail "generate --m: $(complete_words anyaccel generate --m)" ;; esac
case " $(complete_words anyaccel generate --m) " in *" --top-k "*) fail "an option that does not begin so" ;; esac
[ "$(complete_words anyaccel bench ada)" = adam ] || fail "bench ada: $(complete_words anyaccel bench ada)"
[ -z "$(complete_words anyaccel generate --model x)" ] || fail "a file is completed by the shell"
