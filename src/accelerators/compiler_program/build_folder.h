// Manages the files of one run of a compiler program (nvcc, clang): its source and its output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files/files.h"

namespace anyaccel {

class BuildFolder {
 public:
  // Throws abi::Failure with AA_UNAVAILABLE if no folder can be created.
  BuildFolder();

  std::string file(std::string_view name) const { return folder_.file(name); }
  // Writes `source` to the file `file_name` and returns its path. The compiler's messages will refer to the file as
  // `name`, which the caller knows. Throws abi::Failure with AA_RESOURCE_EXHAUSTED if it cannot be written.
  std::string write_source(std::string_view file_name, const std::string& name, std::string_view source) const;

 private:
  TemporaryFolder folder_;
};

// Returns the bytes of a file; empty if it cannot be read.
std::vector<unsigned char> read_output(const std::string& file);

}  // namespace anyaccel
