// Chooses the implementation that multiplies many rows of x: our own (gemm.cpp, or gemv.cpp for up to 64 rows with
// AVX2 and 63 rows of bf16 on a Zen 5) or oneDNN's (gemm_onednn.cpp).
//
// With AMX it is our own (gemm_amx.cpp). Otherwise no rule predicts it (it depends on the processor, the number of threads and
// the shape), so the first large product of a class of shapes measures both and the answer is remembered: in the process, and
// for later processes in a file of the cache folder (base/files/cache_dir.h), see choice_file.h. ANYACCEL_CPU_MATMUL forces one.
#pragma once

#include <cstdint>
#include <string>

#include "accelerators/cpu/kernels/matmul_args.h"

namespace anyaccel::cpu {

enum class MatmulMode {
  Auto,    // measured
  Own,     // never oneDNN, and it is not opened
  OneDnn,  // every product that gemm_onednn() can do; an error if the library is missing
};

// Returns the mode given by set_matmul_mode(), else by ANYACCEL_CPU_MATMUL (auto, own or onednn; unset: auto). Throws
// InvalidArgument for another value.
MatmulMode matmul_mode();
void set_matmul_mode(MatmulMode mode);
// Throws InvalidArgument for any other text.
MatmulMode parse_matmul_mode(const std::string& text);

// Returns whether oneDNN should compute this product, of so many rows that it may be faster than our own. May open the library and
// measure, which takes about a tenth of a second, once for each class of shapes. Throws UnavailableError when oneDNN is
// forced and absent.
bool choose_onednn(const Matmul& args);

// Counts of events since the process began; for the benchmark and tests.
struct MatmulCounts {
  int64_t own = 0;           // products large enough for a choice that our own kernels did
  int64_t onednn = 0;        // products that oneDNN did
  int64_t measurements = 0;  // classes that were measured
};
MatmulCounts matmul_counts() noexcept;

// Clears the choices of this process, not the file; for tests, while no product runs.
void forget_matmul_choices() noexcept;

}  // namespace anyaccel::cpu
