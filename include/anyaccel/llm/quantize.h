// Quantizes or converts the weights of a model: writes them as a GGUF file, whose block formats hold 32 or 256 values
// under common scales, or as a Hugging Face directory in the format of compressed-tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace anyaccel::llm {

struct QuantizeOptions {
  // For a GGUF file one of file_types(), in upper or lower case, q8_0 if empty; for a directory int4 or int8, int8 if
  // empty.
  std::string type;
  // Not empty: a text that the model reads first, in windows of at most 512 tokens. The squared error of a weight then
  // counts by the mean square of the input that it is multiplied with, so that errors are smallest where the text's
  // inputs are large. Takes the memory and time of running the model on the current accelerator.
  std::string importance_text;
  // Called after each piece that was written; an exception it throws ends the work, and no file is left.
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of the input's tensors
};

struct QuantizeResult {
  std::string type;           // as in QuantizeOptions, never empty
  uint64_t bytes_before = 0;  // of all tensors
  uint64_t bytes_after = 0;
  // Root of the mean squared difference of all quantized weights, over the root of their mean square.
  double relative_error = 0;
  // The same with each squared number times the mean square of its input, relative to that of its matrix's inputs; 0
  // without QuantizeOptions::importance_text.
  double weighted_error = 0;
  std::vector<std::string> notes;  // for the user
};

// Returns the types to choose from, separated by commas: "q8_0, q4_0, ..."
std::string quantized_types();
// Returns the types of matrices in a GGUF file in the same form: f32, f16 and bf16, which only convert, and
// quantized_types().
std::string file_types();
// Returns the types of LoadOptions::quantize in the same form: "int8, int4" and quantized_types().
std::string load_types();

// Reads the model at `in` (a Hugging Face directory or a GGUF file, with weights of 16 or 32 bits) and writes it to
// `out`, with its tokenizer.
//
// If `out` ends in .gguf, it becomes a GGUF file with the keys, names and layout that llama.cpp's converter gives the
// family. Matrices are quantized, block by block, with the scales of least squared error; norms, biases, positions and
// routers of experts are fp32. A matrix whose rows are not whole blocks of the type gets the next finer type with
// smaller blocks, or stays in 16 bits; the output matrix (also as a tied embedding) is at least Q6_K. Matrices that are
// quantized already are decoded to f32, f16 or bf16, and those of a directory keep their numbers in a type whose blocks
// can hold them (GPTQ's of 4 bits in q4_0, mxfp4).
//
// Else `out` becomes a directory, and `in` is one. The matrices of the layers are stored as pack-quantized of
// compressed-tensors defines it, 32 values of a row sharing a scale; other tensors, and the files of the tokenizer, are
// copied. Matrices with other rows stay as they are.
//
// Only a piece of one tensor is in memory at a time. The result is written under another name and renamed when it is
// complete.
//
// Blocks, and uses all cores. Throws InvalidArgument for an unknown type, or if `out` is `in`, another part of it or a
// directory that is not empty; CheckpointError for a model or tokenizer that a GGUF file cannot describe, weights that
// are quantized in another way already, or values that are not finite (naming the tensor); Error if writing fails.
QuantizeResult quantize_model(const std::string& in, const std::string& out, const QuantizeOptions& options = {});

}  // namespace anyaccel::llm
