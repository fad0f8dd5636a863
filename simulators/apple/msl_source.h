// Reads a source in the Metal Shading Language as far as its kernels' names and arguments; what runs is the function of the same
// name that was compiled for the host (simulators/kernels).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "simulators/engine/kernel.h"

namespace sim::apple {

struct MslField {
  std::string name;
  bool pointer = false, writes = false;  // writes: to memory that is not const
  std::size_t offset = 0, size = 0;
};
// An argument of a buffer's argument table.
struct MslArgument {
  std::string name;
  int index = -1;
  bool reference = false;        // T& or, in the constant address space, T*: the bytes themselves are the argument
  bool writes = false;           // device memory that is not const
  std::size_t size = 0;          // of the type behind it; 0: not known
  std::vector<MslField> fields;  // of a struct
};
struct MslKernel {
  std::string name, problem;  // problem: what of it is not simulated
  int most_threads = 0;       // [[max_total_threads_per_threadgroup(n)]]
  std::vector<MslArgument> arguments;
  std::vector<int> threadgroup_indices;
};
struct MslResult {
  bool succeeded = false;
  std::string log;
  std::vector<MslKernel> kernels;
};
// `options`: -D of the program.
MslResult read_msl(const std::string& source, const std::vector<std::string>& options);

// The source of the value of a parameter of the host's kernel.
struct ArgumentSource {
  std::size_t argument = 0;  // of MslKernel::arguments
  bool in_memory = false;    // the bytes, or the address, are in the buffer; else the buffer is the pointer
  bool pointer = false;      // an address
  bool writes = false;
  std::size_t offset = 0, size = 0;
};
// One for each parameter; a sentence when they do not match.
std::string match_arguments(const MslKernel& kernel, const KernelInfo& info, std::vector<ArgumentSource>* sources);

}  // namespace sim::apple
