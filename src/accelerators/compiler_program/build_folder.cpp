// Implements build_folder.h: manages the files of one run of a compiler program (nvcc, clang).
#include "accelerators/compiler_program/build_folder.h"

#include <fstream>
#include <iterator>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/error.h"

namespace anyaccel {

// The error is rethrown as abi::Failure, which keeps its code when it is converted to a status.
BuildFolder::BuildFolder() try : folder_("kernels") {
} catch (const UnavailableError& error) {
  throw abi::Failure(AA_UNAVAILABLE, "the compiler has nowhere to work: " + std::string(error.what()));
}

std::string BuildFolder::write_source(std::string_view file_name, const std::string& name,
                                      std::string_view source) const {
  std::string path = file(file_name);
  std::string quoted;
  for (const char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c != '\n') quoted += c;
  }
  std::ofstream stream(path, std::ios::binary);
  stream << "#line 1 \"" << quoted << "\"\n" << source << "\n";
  stream.flush();
  if (!stream) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "the source of " + name + " cannot be written to " + path +
                                                  "; is the disk full? TMPDIR names another folder");
  }
  return path;
}

std::vector<unsigned char> read_output(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace anyaccel
