// Implements parsing and error reporting of the sub-commands.
#include "cli/commands/command_support.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <new>
#include <sstream>
#include <system_error>
#include <type_traits>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "cli/json_output.h"
#include "runtime/environment.h"

namespace anyaccel::cli {

namespace {

struct Failure {
  std::string message;
  std::string kind;  // kind of the object's error; docs/command_line.md lists them
  int code = 1;
  JsonValue object = JsonMembers();  // results from before the error
};

Failure describe(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const PartialResult& partial) {
    Failure failure = describe(partial.cause());
    failure.object = partial.object();
    return failure;
  } catch (const UsageError& error) {
    return {error.what(), "usage", 2};
  } catch (const std::bad_alloc&) {
    return {"the host's memory is used up", "out_of_memory"};
  } catch (const OutOfMemoryError& error) {
    return {error.what(), "out_of_memory"};
  } catch (const InvalidArgument& error) {
    return {error.what(), "invalid_argument"};
  } catch (const UnavailableError& error) {
    return {error.what(), "unavailable"};
  } catch (const NotImplementedError& error) {
    return {error.what(), "not_implemented"};
  } catch (const BuildError& error) {
    return {error.what(), "build"};
  } catch (const CommunicationError& error) {
    return {error.what(), "communication"};
  } catch (const CheckpointError& error) {
    return {error.what(), "checkpoint"};
  } catch (const std::exception& error) {
    return {error.what(), "error"};
  }
}

// Rank 0 prints for all ranks of a job. Called before or after a process group exists, so it uses the launchers'
// variables.
bool is_first_rank() {
  for (const char* name :
       {"RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank) <= 0;
  }
  return true;
}

int report(const std::string& message, int code) {
  std::cerr << "anyaccel: error: " + message + '\n';
  return code;
}

int report_failure(const Failure& failure, bool json) {
  report(failure.message, failure.code);
  if (json && is_first_rank()) {
    JsonValue object = failure.object;
    object["error"] = error_json(failure.kind, failure.message);
    print_json(object);
  }
  return failure.code;
}

template <class T>
T parse_within(const std::string& option, const std::string& text, T low, T high) {
  T value{};
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  // Written so that NaN is rejected.
  if (result.ec == std::errc() && result.ptr == end && value >= low && value <= high) return value;
  std::ostringstream message;
  message << option << " is '" << text << "'; expected a " << (std::is_integral_v<T> ? "whole number" : "number")
          << " from " << low << " to " << high;
  throw UsageError(message.str());
}

}  // namespace

int check_standard_output(int code) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  // The failure may have happened much earlier; writing one more byte gives the reason.
  errno = 0;
  std::putchar('\n');
  std::fflush(stdout);
  const std::string reason = errno == 0 ? "" : ": " + write_problem(errno);
  return report("writing to standard output failed" + reason, code == 0 ? 1 : code);
}

int run_command(CommandLine& line, int argc, char** argv, const std::function<int()>& body, bool uses_variables) {
  int code = 0;
  try {
    if (line.parse(argc, argv)) {
      if (uses_variables) check_environment();
      code = body();
    }
  } catch (const std::exception&) {
    std::cout.flush();
    code = report_failure(describe(std::current_exception()), line.json());
  }
  return check_standard_output(code);
}

void print_json(const JsonValue& object) { std::cout << json_text(object, 2, BadUtf8::Replace) << '\n'; }

JsonValue error_json(const std::string& kind, const std::string& message) {
  return {{"kind", kind}, {"message", message}};
}

int64_t parse_integer(const std::string& option, const std::string& text, int64_t low, int64_t high) {
  return parse_within(option, text, low, high);
}

uint64_t parse_seed(const std::string& option, const std::string& text) {
  return parse_within(option, text, uint64_t{0}, std::numeric_limits<uint64_t>::max());
}

double parse_number(const std::string& option, const std::string& text, double low, double high) {
  return parse_within(option, text, low, high);
}

void require_one_process(const std::string& command) {
  const int ranks = comm::job_size();
  if (ranks == 1) return;
  throw UsageError(command + " runs in one process, and this one belongs to a job of " + std::to_string(ranks) +
                   " ranks; only anyaccel generate splits a model over ranks");
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace anyaccel::cli
