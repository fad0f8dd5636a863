// Implements main() of the command anyaccel. Each sub-command has its own file.
#include "cli/command_main.h"
#include "cli/commands/commands.h"

namespace anyaccel::cli {
namespace {

constexpr Command commands[] = {
    {"info", run_info, "what was chosen and why, every candidate, devices, op builders"},
    {"generate", run_generate, "text from a language model"},
    {"chat", run_chat, "a conversation with a language model"},
    {"quantize", run_quantize, "a model's weights in 8 to 2 bits, as a GGUF file"},
    {"perplexity", run_perplexity, "how well a model predicts a text"},
    {"embed", run_embed, "vectors that stand for texts"},
    {"tokenize", run_tokenize, "the tokens of a text, or the text of tokens"},
    {"launch", run_launch, "a program on many cores, devices and hosts"},
    {"bench", run_check, "figures of this machine, each beside its ceiling"},
    {"build-ops", run_build_ops, "compiles ops ahead; which are built, which could be, and why not"},
    {"conformance", run_check, "checks an accelerator's driver"},
    {"make-model", run_make_model, "a model with random weights, for benchmarks"},
};

}  // namespace
}  // namespace anyaccel::cli

int main(int argc, char** argv) { return anyaccel::cli::command_main(anyaccel::cli::commands, argc, argv); }
