// Compiling the kernels of this project with a vendor's compiler, for the tests of NVRTC and hipRTC.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "accelerators/cuda/compile/rtc.h"
#include "anyaccel/file_output.h"
#include "base/hash.h"
#include "kernels/kernel_files.h"

namespace anyaccel {

// Compiles, and returns the compiler's log. An error is a failure of the test that names options and says what is wrong.
// The log of a success is kept in the build folder, if there is one: all of them take minutes, and the same compiler logs the
// same for the same source and options.
inline std::string compile_once(const cuda::RuntimeCompiler& compiler, const std::string& name,
                                const std::string& source, const std::vector<std::string>& options,
                                cuda::RuntimeCompiler::Image image = cuda::RuntimeCompiler::Image::native) {
  Hash hash;
  hash.add(compiler.identity()).add(name).add(source);
  for (const std::string& option : options) hash.add(option);
  const std::filesystem::path kept = std::filesystem::path(ANYACCEL_BINARY_DIR) / "compiler_logs" / hash.text();
  std::error_code absent;
  if (std::filesystem::exists(kept, absent)) return read_text(kept);
  const abi::CompileOutput output = compiler.compile(name, source, options, image);
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
