// Remembers from earlier processes which algorithm of cuBLASLt was fastest for a kind of product: a text file in the
// cache folder, one line a choice.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "accelerators/cuda/libraries/cublaslt.h"

namespace anyaccel::cuda {

struct ProductChoice {
  LtAlgorithm algorithm{};
  size_t workspace = 0;     // bytes
  double microseconds = 0;  // the measured time; informational
};

// By a key of one line without tabs.
using ProductChoices = std::map<std::string, ProductChoice>;

// <cache folder>/cublaslt_choices.txt; empty when there is no cache folder.
std::filesystem::path product_choice_file();

// Reads the file. A missing, damaged or foreign file gives no choices and a debug message, never an error. A single
// line that cannot be read is skipped.
ProductChoices load_product_choices();

// Adds or replaces a choice. The file is replaced as a whole, so that a reader sees the old or the new one; of two processes
// that store at the same moment one may be forgotten, and measured again. A folder that cannot be written is a debug message.
void store_product_choice(const std::string& key, const ProductChoice& choice);

}  // namespace anyaccel::cuda
