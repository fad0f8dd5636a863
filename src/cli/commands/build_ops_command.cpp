// Implements anyaccel build-ops: compiles host ops ahead of time, so that no program waits for a compiler later, and
// prints which ops are built, which could be, and which cannot, with the reason.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "anyaccel/op_builder.h"
#include "base/files/cache_dir.h"
#include "base/process/start_thread.h"
#include "base/process/toolchain.h"
#include "base/text/nearest_name.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/json_output.h"
#include "ops/build/prebuilt.h"

namespace anyaccel::cli {
namespace {

struct Op {
  std::unique_ptr<OpBuilder> builder;
  bool included = false;  // part of the library: nothing to build
  bool compatible = false;
  bool was_built = false;
  bool asked = false;  // to be built by this command
  bool built_now = false;
  std::string reason;  // why it is not compatible, or why its build failed
  bool failed = false;
};

// DS_BUILD_...: 1, 0, or nothing.
std::optional<bool> switch_of(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  if (!value || !*value) return {};
  const std::string text = value;
  if (text == "1") return true;
  if (text == "0") return false;
  throw UsageError(variable + " is \"" + text + "\"; expected 1 (build it) or 0 (do not)");
}

std::vector<Op> survey(const std::vector<std::string>& names) {
  const bool all = switch_of("DS_BUILD_OPS").value_or(true);
  std::vector<Op> ops;
  std::vector<std::string> unknown = names;
  for (const std::string& builder_name : get_accelerator()->op_builder_names()) {
    Op op;
    op.builder = get_accelerator()->create_op_builder(builder_name);
    op.compatible = op.builder->is_compatible(&op.reason);
    op.included = op.compatible && op.builder->sources().empty();
    op.was_built = op.compatible && op.builder->is_built();
    const auto is_this = [&](const std::string& name) { return name == builder_name || name == op.builder->op_name(); };
    const bool named = std::any_of(names.begin(), names.end(), is_this);
    op.asked = named || (names.empty() && switch_of(op.builder->build_var()).value_or(all));
    // A request for all ops skips incompatible ones; a request for one op fails if it is incompatible.
    if (op.asked && !op.compatible) {
      if (named) op.failed = true;
      op.asked = false;
      if (!named && switch_of(op.builder->build_var()).value_or(false)) {
        log_warning(op.builder->build_var() + "=1, but " + op.reason);
      }
    }
    if (op.included) op.asked = false;
    std::erase_if(unknown, is_this);
    ops.push_back(std::move(op));
  }
  if (!unknown.empty()) {
    std::string list;
    std::vector<std::string> known;
    for (const Op& op : ops) {
      list += " " + known.emplace_back(op.builder->op_name());
      known.push_back(op.builder->name());
    }
    const std::string hint = did_you_mean(unknown[0], known);
    throw UsageError("--op " + unknown[0] + ": there is no such op" + (hint.empty() ? "; known:" : hint + " Known:") +
                     list);
  }
  return ops;
}

std::string not_kept() {
  const std::filesystem::path folder = cache_directory();
  return "it was compiled, but is not kept " +
         (folder.empty() ? "because there is no cache folder" : "in the cache folder " + folder.string()) +
         " (see the warning); set ANYACCEL_CACHE_DIR to a folder that only you can write";
}

// Builds the requested ops, `jobs` at a time. One line on standard error shows the progress.
void build(std::vector<Op>& ops, const std::string& prebuilt) {
  std::vector<Op*> work;
  for (Op& op : ops) {
    if (op.asked && (!op.was_built || !prebuilt.empty())) work.push_back(&op);
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t done = 0;
  const bool terminal = stderr_is_terminal();
  const auto work_off = [&] {
    for (size_t i = next++; i < work.size(); i = next++) {
      Op& op = *work[i];
      try {
        if (prebuilt.empty()) {
          op.builder->load();
          if (!op.builder->is_built()) throw BuildError(not_kept());
        } else {
          ops::write_prebuilt(op.builder->builder(), prebuilt);
        }
        op.built_now = true;
      } catch (const std::exception& error) {
        op.failed = true;
        op.reason = error.what();
      }
      std::lock_guard lock(mutex);
      ++done;
      std::fprintf(stderr, "%s[%zu/%zu] %s %s%s", terminal ? "\r\033[K" : "", done, work.size(),
                   op.failed ? "failed:" : "built", op.builder->op_name().c_str(),
                   terminal && done < work.size() ? "" : "\n");
    }
  };
  std::vector<std::jthread> helpers;
  if (!work.empty()) start_helpers(helpers, std::min(work.size(), static_cast<size_t>(max_jobs())) - 1, work_off);
  work_off();
}

const char* built_text(const Op& op) {
  if (op.included) return "included";
  if (op.built_now) return "now";
  return op.was_built ? "yes" : "no";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string failures(const std::vector<Op>& ops) {
  std::string text;
  for (const Op& op : ops) {
    if (op.failed) text += (text.empty() ? "" : "\n") + op.builder->name() + ": " + op.reason;
  }
  return text;
}

}  // namespace

int run_build_ops(int argc, char** argv) {
  CommandLine line("Compiles the host ops ahead and prints which op is built, which could be, and why not.",
                   "anyaccel build-ops");
  std::vector<std::string> names;
  std::string prebuilt;
  bool list = false;
  bool json = false;
  line.add_option("--op", names, "only this op (cpu_adam, or CPUAdamBuilder); may be repeated").not_empty();
  line.add_flag("--list", list, "build nothing, only print the table");
  line.add_option("--prebuilt", prebuilt,
                  "write the libraries to this folder (lib/anyaccel/ops of a package) instead of the cache, for the "
                  "instruction set in use (ANYACCEL_CPU_ISA)")
      .not_empty();
  line.add_json_flag(json, "one JSON object instead of a table");
  return run_command(line, argc, argv, [&] {
    std::vector<Op> ops = survey(names);
    if (!list) build(ops, prebuilt);
    const bool failed = std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.failed; });
    if (json) {
      JsonValue object;
      for (const Op& op : ops) {
        object["ops"].push_back({{"op", op.builder->op_name()},
                                 {"builder", op.builder->name()},
                                 {"built", built_text(op)},
                                 {"compatible", op.compatible},
                                 {"reason", op.reason}});
      }
      if (failed) object["error"] = error_json("build", failures(ops));
      print_json(object);
    } else {
      std::printf("%-24s %-9s %-11s %s\n", "op", "built", "compatible", "why not");
      for (const Op& op : ops) {
        std::printf("%-24s %-9s %-11s %s\n", op.builder->op_name().c_str(), built_text(op),
                    op.compatible ? "yes" : "no", first_line(op.reason).c_str());
      }
    }
    std::fflush(stdout);
    for (const Op& op : ops) {
      if (op.failed) std::fprintf(stderr, "anyaccel: error: %s: %s\n", op.builder->name().c_str(), op.reason.c_str());
    }
    return failed ? 1 : 0;
  });
}

}  // namespace anyaccel::cli
