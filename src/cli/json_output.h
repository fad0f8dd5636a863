// Prints the JSON object of a command with --json.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/text/json.h"

namespace anyaccel::cli {

// Prints to standard output. Bytes that are not UTF-8 are replaced: prompts, paths and a plugin's texts may contain any.
void print_json(const JsonValue& object);

// Returns the member "error" for a command that ends with a code other than 0.
JsonValue error_json(const std::string& kind, const std::string& message);

// Reports a failure of a command with --json that already has results: run_command() prints their object with the error
// of `cause` as its member "error".
class PartialResult : public std::exception {
 public:
  PartialResult(std::exception_ptr cause, JsonValue object) : cause_(std::move(cause)), object_(std::move(object)) {}
  const char* what() const noexcept override { return "the command failed after some results"; }
  const std::exception_ptr& cause() const noexcept { return cause_; }
  const JsonValue& object() const noexcept { return object_; }

 private:
  std::exception_ptr cause_;
  JsonValue object_;
};

}  // namespace anyaccel::cli
