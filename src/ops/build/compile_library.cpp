// Compiles and links a plan's sources: see build_cache.h.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/install_paths.h"
#include "base/process/shell.h"
#include "base/process/start_thread.h"
#include "base/process/subprocess.h"
#include "base/process/toolchain.h"
#include "ops/build/build_cache.h"
#include "ops/build/cache_entry.h"
#include "ops/build/compiler_output.h"
#include "ops/build/source_languages.h"

namespace anyaccel::ops {
namespace {

// Returns the prerequisites of the make rule that a compiler wrote. In it, a blank in a name is "\ ", a dollar is "$$",
// and a backslash at the end of a line continues it on the next.
std::vector<std::string> read_depfile(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  std::vector<std::string> names;
  std::string name;
  const size_t colon = text.find(": ");
  for (size_t i = colon == std::string::npos ? text.size() : colon + 2; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : '\n';
    if (c == '\\' && i + 1 < text.size() && (text[i + 1] == '\n' || text[i + 1] == ' ' || text[i + 1] == '#')) {
      ++i;
      if (text[i] != '\n') {
        name += text[i];
        continue;
      }
    } else if (c == '$' && i + 1 < text.size() && text[i + 1] == '$') {
      ++i;
      name += '$';
      continue;
    } else if (c != ' ' && c != '\n') {
      name += c;
      continue;
    }
    if (!name.empty()) names.push_back(std::move(name));
    name.clear();
  }
  return names;
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// Compilers of C++ take a file of C for C++, and refuse the standard of C++ for a file of C.
bool is_c(const std::string& source) { return source.ends_with(".c"); }

std::vector<std::string> flags_for_c(std::vector<std::string> flags) {
  std::erase_if(flags,
                [](const std::string& flag) { return flag.starts_with("-std=c++") || flag.starts_with("-std=gnu++"); });
  return flags;
}

void run_step(const BuildPlan& plan, const std::vector<std::string>& command) {
  log_debug("building op " + plan.op_name + ": " + quote_words(command));
  const ProcessResult result = run_program(command);
  if (result.ok()) {
    if (!result.output.empty()) log_debug(result.output);
    return;
  }
  std::string message = "op \"" + plan.op_name + "\" could not be built: the command\n" + quote_words(command) + "\n";
  if (result.exit_code > 128) {
    message += "was ended by signal " + std::to_string(result.exit_code - 128);
  } else {
    message += "failed with exit code " + std::to_string(result.exit_code);
  }
  message += result.output.empty() ? ", and said nothing" : " and said:\n" + shown_output(result.output);
  // Without the package there are no headers for the op's source.
  const std::string missing = missing_package();
  throw BuildError(message + (missing.empty() ? "" : "\n" + missing));
}

}  // namespace

std::vector<std::string> compile_library(const BuildPlan& plan, const std::filesystem::path& work,
                                         const std::filesystem::path& output) {
  const std::vector<std::string> compiler = cxx_command(plan.compiler);
  std::vector<std::string> includes;
  for (const std::string& path : plan.include_paths) includes.push_back("-I" + path);

  // A single C++ source, the usual case, takes one command, because starting a compiler twice costs a tenth of a
  // second.
  std::vector<std::vector<std::string>> steps;
  std::vector<std::string> objects;
  std::vector<std::string> extra_link_flags;
  std::vector<std::filesystem::path> depfiles;
  const bool one_step = plan.sources.size() == 1 && !language_of(plan.sources[0]) && !is_c(plan.sources[0]);
  for (size_t i = 0; i < plan.sources.size(); ++i) {
    const std::string object = (work / ("source" + std::to_string(i) + ".o")).string();
    depfiles.push_back(work / ("source" + std::to_string(i) + ".d"));
    objects.push_back(object);
    if (const SourceLanguage* language = language_of(plan.sources[i])) {
      steps.push_back(language->command(plan, plan.sources[i], object, depfiles.back().string()));
      append(extra_link_flags, language->link_flags());
      continue;
    }
    std::vector<std::string> command = compiler;
    append(command, is_c(plan.sources[i]) ? flags_for_c(plan.cxx_args) : plan.cxx_args);
    append(command, includes);
    append(command, {"-MD", "-MF", depfiles.back().string()});
    if (one_step) {
      append(command, {"-shared", plan.sources[i], "-o", output.string()});
      append(command, plan.ldflags);
    } else {
      if (is_c(plan.sources[i])) append(command, {"-x", "c"});
      append(command, {"-c", plan.sources[i], "-o", object});
    }
    steps.push_back(std::move(command));
  }

  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work_off = [&] {
    for (size_t i = next++; i < steps.size(); i = next++) {
      try {
        run_step(plan, steps[i]);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        next = steps.size();
      }
    }
  };
  std::vector<std::jthread> helpers;
  start_helpers(helpers, std::min(steps.size(), static_cast<size_t>(max_jobs())) - 1, work_off);
  work_off();
  helpers.clear();
  if (first_error) std::rethrow_exception(first_error);

  if (!one_step) {
    std::vector<std::string> link = compiler;
    append(link, plan.cxx_args);
    append(link, {"-shared", "-o", output.string()});
    append(link, objects);
    append(link, extra_link_flags);
    append(link, plan.ldflags);
    run_step(plan, link);
  }
  std::set<std::string> inputs;
  for (const auto& depfile : depfiles) {
    for (std::string& name : read_depfile(depfile)) inputs.insert(std::move(name));
  }
  for (std::string& name : linked_files(plan)) inputs.insert(std::move(name));
  // A compiler may be replaced by one of the same size and time of modification, which its identity would not tell apart.
  std::vector<std::string> programs = compiler;
  for (const std::string& source : plan.sources) {
    if (const SourceLanguage* language = language_of(source)) programs.push_back(language->compiler());
  }
  for (const std::string& program : programs) {
    if (std::string file = compiler_file(program); !file.empty()) inputs.insert(std::move(file));
  }
  for (const std::string& source : plan.sources) inputs.erase(source);
  return {inputs.begin(), inputs.end()};
}

}  // namespace anyaccel::ops
