// The files of one run of a compiler that is a program (nvcc, clang): its source and its output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files/files.h"

namespace anyaccel {

class BuildFolder {
 public:
  // abi::Failure AA_UNAVAILABLE when no folder can be made.
  BuildFolder();

  std::string file(std::string_view name) const { return folder_.file(name); }
  // Writes `source` to the file `file_name` and gives its path. The compiler's messages will speak of `name`, which the
  // caller knows. abi::Failure AA_RESOURCE_EXHAUSTED when it cannot be written.
  std::string write_source(std::string_view file_name, const std::string& name, std::string_view source) const;

 private:
  TemporaryFolder folder_;
};

// Returns the bytes of a file; empty if it cannot be read.
std::vector<unsigned char> read_output(const std::string& file);

}  // namespace anyaccel
