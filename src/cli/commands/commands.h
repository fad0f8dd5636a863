// Declares the sub-commands of `anyaccel`. Each takes its own name in argv[0] and its options after it, writes results
// to standard output and everything else to standard error, and returns the exit code: 0, 1 for a failure, 2 for wrong
// usage.
#pragma once

namespace anyaccel::cli {

// Loads a model and streams the text that follows the prompts.
int run_generate(int argc, char** argv);
// Holds a conversation with a chat model on the terminal.
int run_chat(int argc, char** argv);
// Writes a model with random weights.
int run_make_model(int argc, char** argv);
// Writes a model's weights quantized, as a GGUF file.
int run_quantize(int argc, char** argv);
// Measures how well a model predicts a text.
int run_perplexity(int argc, char** argv);
// Prints vectors that stand for texts.
int run_embed(int argc, char** argv);
// Prints the tokens of a text, or the text of tokens.
int run_tokenize(int argc, char** argv);
// Prints the chosen accelerator and the reasons.
int run_info(int argc, char** argv);
// Compiles host ops ahead of time.
int run_build_ops(int argc, char** argv);
// Becomes the program anyaccel-checks, which has the sub-commands bench and conformance.
int run_check(int argc, char** argv);

// Runs a program on many cores, devices and hosts.
int run_launch(int argc, char** argv);

}  // namespace anyaccel::cli
