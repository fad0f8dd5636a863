// Objects that the simulated libnnopbase.so keeps and that libopapi.so, which is linked to it like the real one, uses:
// the objects behind tensors, scalars and executors of aclnn functions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulators/libraries/hooks.h"

namespace sim_library {

enum NnStatus : int { kNnSuccess = 0, kNnNullPointer = 161001, kNnInvalid = 161002, kNnInner = 561000 };

// aclDataType
enum NnType : int { kNnFloat = 0, kNnHalf = 1, kNnInt32 = 3, kNnInt64 = 9, kNnBool = 12, kNnBfloat16 = 27 };
std::size_t nn_type_bytes(int type);  // 0: not simulated

// aclFormat: rows of elements, and blocks of 16 rows by 32 bytes, one column of blocks after the other.
enum NnFormat : int { kNnNd = 2, kNnFractalNz = 29 };
constexpr std::int64_t kNnBlockRows = 16, kNnBlockBytes = 32;

struct NnTensor {
  std::vector<std::int64_t> dims, strides;  // in elements; of a tensor in blocks, those that it would have in rows
  int format = kNnNd;                       // kNnNd, or kNnFractalNz for a matrix in blocks
  std::int64_t offset = 0;                  // in elements
  int type = 0;
  char* data = nullptr;

  std::int64_t elements() const;
  std::size_t bytes() const;  // from the first element to the end of the last one; in blocks: all of them
  // Of a matrix in blocks. Returns true if the tensor is its transpose: [k, n] with the strides {1, k}.
  bool transposed() const { return strides[0] == 1 && strides[1] == dims[0]; }
  // Of a matrix in blocks: the sizes that it is stored with, {columns of blocks, rows of blocks, 16, elements in 32 bytes}.
  std::array<std::int64_t, 4> blocks() const;
  // Of a matrix in blocks: where the element of this row and column of the matrix that is stored lies, in elements.
  std::int64_t place(std::int64_t row, std::int64_t column) const;
};
struct NnScalar {
  double value = 0;
  std::int64_t whole = 0;  // of whole numbers, all bits
};
struct NnIntArray {
  std::vector<std::int64_t> values;
};
// The object that the first call of an aclnn function creates and the second one runs.
struct NnExecutor {
  std::string function;  // the one that runs it
  std::vector<sim_hooks::Range> ranges;
  sim_hooks::Body body;
  std::uint64_t workspace = 0;
  bool repeatable = false;
  std::vector<const void*> tensors;  // handles, which must stand for something until the second call
};

#define SIM_NN __attribute__((visibility("default")))
// Null, and a violation by `function`, when the handle stands for nothing.
SIM_NN std::shared_ptr<const NnTensor> nn_tensor(const void* handle, const char* function);
SIM_NN std::shared_ptr<const NnScalar> nn_scalar(const void* handle, const char* function);
SIM_NN std::shared_ptr<const NnIntArray> nn_int_array(const void* handle, const char* function);
SIM_NN std::shared_ptr<NnExecutor> nn_executor(const void* handle, const char* function);
SIM_NN void* nn_add_executor(std::shared_ptr<NnExecutor> executor);
SIM_NN void nn_remove_executor(const void* handle);

}  // namespace sim_library
