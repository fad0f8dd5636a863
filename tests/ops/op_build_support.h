// Helpers that the tests of op builders share: scoped environment variables, and builders made from text.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"
#include "temporary_folder.h"

namespace anyaccel::test {

// Sets (or, without a value, removes) an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, std::optional<std::string> value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

// A builder of sources in a folder of the test's.
class FolderBuilder : public HostOpBuilder {
 public:
  FolderBuilder(std::string name, std::filesystem::path folder, std::vector<std::string> sources)
      : HostOpBuilder(std::move(name)), folder_(std::move(folder)), sources_(std::move(sources)) {}
  std::string folder() const override { return folder_.string(); }
  std::vector<std::string> sources() const override { return sources_; }

 private:
  std::filesystem::path folder_;
  std::vector<std::string> sources_;
};

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(stream)), {});
}

// The message of what `body` throws; fails the test when nothing is thrown.
template <class Exception, class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace anyaccel::test
