// Compiling the kernels of this project with a vendor's compiler, for the tests of NVRTC and hipRTC.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "accelerators/cuda/compile/rtc.h"
#include "anyaccel/file_output.h"
#include "base/hash.h"

namespace anyaccel {

inline const std::filesystem::path kernels_folder = std::filesystem::path(ANYACCEL_SOURCE_DIR) / "kernels";
inline const std::string cuda_dialect = (kernels_folder / "portable/dialects/cuda-c++").string();
inline const std::vector<std::string> element_types = {"f32", "bf16", "f16"};

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::vector<std::string> files_of(const char* folder, const char* extension) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kernels_folder / folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The choices of element types of a file, or of formats of quantized weights (those whose code differs most), as options. Types and
// architectures do not meet in the code, so one architecture is tried with all types and the others with `all_types` false: one
// type.
inline std::vector<std::vector<std::string>> type_options(const std::string& file, bool all_types) {
  const std::string text = read_text(kernels_folder / "portable" / file);
  if (text.find("AA_NAME_BLOCK") != std::string::npos) {
    std::vector<std::vector<std::string>> choices;
    for (const char* format : {"q4_k", "q5_0", "q8_0", "q6_k", "tq1_0", "mxfp4"}) {
      if (all_types || choices.empty()) choices.push_back({std::string("-DAA_BLOCK=") + format});
    }
    return choices;
  }
  // These are whole words, because AA_WIDE does not depend on an element type. simulators/kernels/host_kernels.cmake reads the files in the same way.
  static const std::regex names_w("(^|[^A-Z_])AA_(W|NAME_W|NAME_XW)([^A-Z_]|$)");
  static const std::regex names_x("(^|[^A-Z_])AA_(X|NAME_X)([^A-Z_]|$)");
  const bool has_w = std::regex_search(text, names_w);
  const bool has_x = has_w || std::regex_search(text, names_x);
  if (!has_x) return {{}};
  std::vector<std::vector<std::string>> choices;
  for (const std::string& x : element_types) {
    for (const std::string& w : element_types) {
      if (!has_w && w != x) continue;
      if (!all_types && (x != "bf16" || w != x)) continue;
      choices.push_back({"-DAA_X=" + x});
      if (has_w) choices.back().push_back("-DAA_W=" + w);
    }
  }
  return choices;
}

// Compiles, and returns the compiler's log. An error is a failure of the test that names options and says what is wrong.
// The log of a success is kept in the build folder, if there is one: all of them take minutes, and the same compiler logs the
// same for the same source and options.
inline std::string compile_once(const cuda::RuntimeCompiler& compiler, const std::string& name,
                                const std::string& source, const std::vector<std::string>& options) {
  Hash hash;
  hash.add(compiler.identity()).add(name).add(source);
  for (const std::string& option : options) hash.add(option);
  const std::filesystem::path kept = std::filesystem::path(ANYACCEL_BINARY_DIR) / "compiler_logs" / hash.text();
  std::error_code absent;
  if (std::filesystem::exists(kept, absent)) return read_text(kept);
  const abi::CompileOutput output = compiler.compile(name, source, options, cuda::RuntimeCompiler::Image::native);
  std::string shown;
  for (const std::string& option : options) shown += " " + option;
  EXPECT_TRUE(output.succeeded) << name << shown << "\n" << output.log;
  EXPECT_EQ(output.image.empty(), !output.succeeded) << name << shown;
  if (output.succeeded && !output.image.empty() && std::filesystem::is_directory(ANYACCEL_BINARY_DIR, absent)) {
    std::filesystem::create_directory(kept.parent_path(), absent);
    write_output_file(kept, output.log);
  }
  return output.log;
}

}  // namespace anyaccel
