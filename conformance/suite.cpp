// The runner of the conformance suite.
#include "conformance/suite.h"

#include <algorithm>
#include <memory>
#include <set>

#include "conformance/case_run.h"
#include "conformance/isolation.h"
#include "conformance/op_roles.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::conformance {
namespace {

bool matches(std::string_view filter, const std::string& name) {
  bool wanted = false, only_exclusions = true;
  while (!filter.empty()) {
    const size_t comma = filter.find(',');
    std::string_view part = filter.substr(0, comma);
    filter = comma == std::string_view::npos ? std::string_view() : filter.substr(comma + 1);
    const bool excludes = part.starts_with('!');
    if (excludes) part.remove_prefix(1);
    if (part.empty()) continue;
    const bool found = name.find(part) != std::string::npos;
    if (excludes && found) return false;
    only_exclusions = only_exclusions && excludes;
    wanted = wanted || (!excludes && found);
  }
  return wanted || only_exclusions;
}

std::string name_in_group(const Case& item) {
  switch (item.form) {
    case TensorForm::as_given: break;
    case TensorForm::padded: return std::string(item.name) + ".padded";
    case TensorForm::spread: return std::string(item.name) + ".spread";
    case TensorForm::in_place: return std::string(item.name) + ".in_place";
    case TensorForm::null: return std::string(item.name) + ".null";
    case TensorForm::short_of_memory: return std::string(item.name) + ".short_of_memory";
  }
  return item.name;
}

std::string full_name(const Case& item) { return std::string(item.group) + "." + name_in_group(item); }

using Lists = std::vector<std::span<const Case>>;

// Checks of the table alone, after probing.
Lists device_lists() {
  return {device_cases(),     struct_cases(),   memory_cases(),      exhaustion_cases(),  copy_cases(),
          stream_cases(),     event_cases(),    order_cases(),       order_event_cases(), order_waiting_cases(),
          order_item_cases(), lazy_cases(),     fault_cases(),       many_device_cases(), growth_cases(),
          thread_cases(),     kernel_cases(),   graph_cases(),       host_memory_cases(), memory_kind_cases(),
          host_code_cases(),  profiler_cases(), collectives_cases(), op_table_cases(),    pack_cases(),
          file_cases(),       fork_cases()};
}

// Cases of values, each followed by its forms: the same calls on tensors of other layouts.
std::span<const Case> op_value_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all;
    std::set<std::string_view> tried;
    for (const auto& list : Lists{random_cases(), elementwise_cases(), row_cases(), product_cases(), fused_cases(),
                                  attention_cases(), sampling_cases(), training_cases(), special_value_cases(),
                                  training_special_cases(), by_row_cases(), empty_cases()}) {
      for (const Case& item : list) {
        all.push_back(item);
        const auto add = [&](TensorForm form) {
          all.push_back(item);
          all.back().form = form;
        };
        add(TensorForm::padded);
        add(TensorForm::spread);
        const auto roles = roles_of(std::string_view(item.group).substr(3));
        if (std::ranges::any_of(roles, [](const TensorRole& role) { return role.in_place != 0; })) {
          add(TensorForm::in_place);
        }
        if (list.data() == empty_cases().data()) add(TensorForm::null);
        // The calls of an op's first case are as good as those of the others.
        if (tried.insert(item.group).second) add(TensorForm::short_of_memory);
      }
    }
    return all;
  }();
  return cases;
}

Lists op_lists() { return {op_value_cases(), op_graph_cases(), op_size_cases(), training_size_cases()}; }

// Records that none of the cases could run.
void give_up(const Lists& lists, Outcome outcome, const std::string& why, std::string_view filter,
             std::vector<CaseResult>& results) {
  for (const auto& list : lists) {
    for (const Case& item : list) {
      if (matches(filter, full_name(item))) results.push_back({item.group, name_in_group(item), outcome, why, 0});
    }
  }
}

// Flags that cases test. No case can judge the others: that the host's clock is better, that a language exists.
struct Promise {
  uint64_t flag;
  const char* name;
};
constexpr Promise promises[] = {
    {AA_CAP_SYNCHRONOUS, "synchronous"},
    {AA_CAP_RESOLVES_DEPENDENCIES, "resolves_dependencies"},
    {AA_CAP_HOST_COHERENT, "host_coherent"},
    {AA_CAP_EVENT_TIMING, "event_timing"},
    {AA_CAP_PINNED_HOST, "pinned_host"},
    {AA_CAP_MANAGED_MEMORY, "managed_memory"},
    {AA_CAP_CONCURRENT_STREAMS, "concurrent_streams"},
    {AA_CAP_HOST_CALL, "host_call"},
    {AA_CAP_KERNELS, "kernels"},
    {AA_CAP_IS_HOST, "is_host"},
};

class Runner {
 public:
  Runner(const Driver& driver, std::string_view filter, const Isolation& isolation, std::vector<CaseResult>& results)
      : driver_(driver), filter_(filter), isolation_(isolation), results_(results), coverage_(coverage()) {}

  void run_list(std::span<const Case> list, Setting setting) {
    for (const Case& item : list) {
      if (!matches(filter_, full_name(item))) continue;
      results_.push_back(run(item.group, name_in_group(item),
                             [&](Slot& slot) { run_case(driver_, item, setting, probe_, closes_, slot); }));
    }
  }

  // "life.opens". Returns whether the cases of an opened driver can run; if not, `why` and `otherwise` are the message
  // and outcome to record for them.
  bool opens(std::string& why, Outcome& otherwise) {
    CaseResult result = run("life", "opens", [&](Slot& slot) { run_opening(driver_, closes_, slot); });
    why = result.message;
    otherwise = result.outcome;
    probe_ = slot_.get().probe;
    caps_ = slot_.get().caps;
    const bool good = result.outcome == Outcome::pass;
    if (result.outcome == Outcome::unavailable && probe_.state == AA_PROBE_USABLE) {
      result.outcome = Outcome::fail;
      result.message = "the probe says that the accelerator can be used, and nothing could be opened: " + why;
    }
    if (result.outcome == Outcome::fail || matches(filter_, "life.opens")) results_.push_back(std::move(result));
    return good;
  }

  // Checks that are possible only at the end.
  void judge_promises(bool opened, const std::string& why, Outcome otherwise) {
    for (const Promise& promise : promises) {
      const std::string name = std::string("promises.") + promise.name;
      if (!matches(filter_, name)) continue;
      CaseResult result{"promises", promise.name, Outcome::pass, "", 0};
      if (!opened) {
        result.outcome = otherwise;
        result.message = why;
      } else if (!(caps_ & promise.flag)) {
        result.outcome = Outcome::unsupported;
        result.message = "the flag is clear";
      } else if (!(tested_ & promise.flag) && !filter_.empty()) {
        result.outcome = Outcome::unavailable;
        result.message = "no case that was run tests it; all cases were not run";
      } else if (!(tested_ & promise.flag)) {
        result.outcome = Outcome::fail;
        result.message = "the flag is set, and no case that tests it could do so here";
      }
      results_.push_back(std::move(result));
    }
  }

  // An op that the driver has, but for which it accepts none of the cases' calls, is useless.
  void judge_ops(bool opened, const std::string& why, Outcome otherwise) {
    if (!matches(filter_, "promises.ops")) return;
    CaseResult result{"promises", "ops", Outcome::pass, "", 0};
    std::string declined;
    for (size_t i = 0; i < op_count; ++i) {
      const uint64_t bit = uint64_t{1} << i;
      if ((ops_found_ & bit) && !(ops_run_ & bit))
        declined += (declined.empty() ? "" : ", ") + std::string(op_names[i]);
    }
    if (!opened) {
      result.outcome = otherwise;
      result.message = why;
    } else if (ops_found_ == 0) {
      result.outcome = Outcome::unsupported;
      result.message = "the driver has no ops of its own";
    } else if (!filter_.empty()) {
      result.outcome = Outcome::unavailable;
      result.message = "judged by a run of all cases only";
    } else if (!declined.empty()) {
      result.outcome = Outcome::fail;
      result.message = "the driver has a number for these ops and took no call of them: " + declined;
    }
    results_.push_back(std::move(result));
  }

  void judge_closing(bool opened, const std::string& why, Outcome otherwise) {
    CaseResult result{"life", "closes_without_error", Outcome::pass, "", 0};
    if (!closing_error_.empty()) {
      result.outcome = Outcome::fail;
      result.message = closing_error_;
    } else if (!opened) {
      result.outcome = otherwise;
      result.message = why;
    }
    const bool wanted = matches(filter_, "life.closes_without_error");
    if (wanted || !closing_error_.empty()) results_.push_back(std::move(result));
  }

  std::vector<FunctionCoverage> take_coverage() { return std::move(coverage_); }

 private:
  template <class Body>
  CaseResult run(const std::string& group, const std::string& name, const Body& body) {
    slot_.reset();
    Slot& slot = slot_.get();
    std::string end;
    std::string printed;
    if (isolation_.in_process) {
      body(slot);
    } else {
      end = run_in_child([&] { body(slot); }, slot, isolation_.timeout, printed);
    }
    const Stage stage = slot.stage;
    CaseResult result{group, name, slot.outcome, slot.message.data(), slot.milliseconds};
    if (stage < Stage::closing) {
      result.outcome = Outcome::fail;
      result.message = end;
    } else if (!printed.empty() && result.outcome != Outcome::fail) {
      result.outcome = Outcome::fail;
      result.message = "the driver printed to standard output, which is the program's: \"" + printed + "\"";
    }
    if (stage >= Stage::closing) {
      if (result.outcome == Outcome::pass || result.outcome == Outcome::fail) tested_ |= slot.asked;
      ops_found_ |= slot.ops_found;
      ops_run_ |= slot.ops_run;
      note_closing(group + "." + name, end.empty() ? slot.closing_error.data() : end);
    }
    for (size_t i = 0; i < std::min(coverage_.size(), Slot::most_functions); ++i) {
      coverage_[i].calls += slot.calls[i];
      coverage_[i].unimplemented += slot.unimplemented[i];
    }
    return result;
  }

  void note_closing(const std::string& after, const std::string& error) {
    if (error.empty() || !closing_error_.empty()) return;
    closing_error_ = "after " + after + ": " + error;
    // One that crashes or hangs there would do so after every case.
    closes_ = false;
  }

  Driver driver_;
  std::string_view filter_;
  Isolation isolation_;
  std::vector<CaseResult>& results_;
  SharedSlot slot_;
  std::vector<FunctionCoverage> coverage_;
  aa_probe probe_{};
  uint64_t caps_ = 0;    // of device 0
  uint64_t tested_ = 0;  // flags that a case has tested
  uint64_t ops_found_ = 0, ops_run_ = 0;
  bool closes_ = true;
  std::string closing_error_;
};

}  // namespace

const char* outcome_name(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::pass: return "pass";
    case Outcome::fail: return "fail";
    case Outcome::unsupported: return "unsupported";
    case Outcome::unavailable: return "unavailable";
  }
  return "";
}

Report run_conformance(const aa_driver* driver, const aa_host* host, std::string_view filter,
                       const MakeOpProvider& make_ops, const Isolation& isolation, const char* library_path) {
  const DriverOptions options(*driver);
  Report report;
  counted(*driver, host);  // the counts begin at zero
  Runner runner({driver, host, &make_ops, {&options, library_path}}, filter, isolation, report.cases);
  runner.run_list(probe_cases(), Setting::table);
  runner.run_list(unopened_device_cases(), Setting::table);
  runner.run_list(unopened_struct_cases(), Setting::table);
  std::string why;
  Outcome otherwise = Outcome::unavailable;
  const bool opened = runner.opens(why, otherwise);
  if (opened) {
    for (const auto& list : device_lists()) runner.run_list(list, Setting::opened);
    for (const auto& list : op_lists()) runner.run_list(list, Setting::with_ops);
  } else {
    give_up(device_lists(), otherwise, why, filter, report.cases);
    give_up(op_lists(), otherwise, why, filter, report.cases);
  }
  runner.judge_closing(opened, why, otherwise);
  runner.judge_promises(opened, why, otherwise);
  runner.judge_ops(opened, why, otherwise);
  report.coverage = runner.take_coverage();
  return report;
}

std::vector<std::string> conformance_cases() {
  std::vector<std::string> names;
  for (const auto& lists :
       {Lists{probe_cases(), unopened_device_cases(), unopened_struct_cases()}, device_lists(), op_lists()}) {
    for (const auto& list : lists) {
      for (const Case& item : list) names.push_back(full_name(item));
    }
  }
  names.emplace_back("life.opens");
  names.emplace_back("life.closes_without_error");
  for (const Promise& promise : promises) names.push_back(std::string("promises.") + promise.name);
  names.emplace_back("promises.ops");
  return names;
}

}  // namespace anyaccel::conformance
