// A directory for one test, removed when the test ends, and small helpers for files and errors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "anyaccel/error.h"
#include "temporary_folder.h"

namespace anyaccel::llm::testing {

using TestDirectory = test::TemporaryFolder;

inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// The message of the CheckpointError that `call` must throw.
template <typename F>
std::string checkpoint_error(F&& call) {
  try {
    call();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a CheckpointError";
  return "";
}

inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected " << part << " in: " << text;
}

}  // namespace anyaccel::llm::testing
