// The runner of the conformance suite.
#include "conformance/suite.h"

#include <chrono>
#include <exception>
#include <memory>

#include "conformance/context.h"

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

std::string full_name(const Case& item) { return std::string(item.group) + "." + item.name; }

using Lists = std::vector<std::span<const Case>>;

// Of the driver alone, after probing.
Lists device_lists() {
  return {device_cases(),    memory_cases(),   exhaustion_cases(),  copy_cases(),     stream_cases(),
          event_cases(),     thread_cases(),   kernel_cases(),      graph_cases(),    host_memory_cases(),
          host_code_cases(), profiler_cases(), collectives_cases(), op_table_cases(), fork_cases()};
}

Lists op_lists() {
  return {random_cases(), elementwise_cases(), row_cases(),      product_cases(),
          fused_cases(),  attention_cases(),   sampling_cases(), op_graph_cases()};
}

template <class Body>
CaseResult guarded(const Case& item, const Body& body) {
  CaseResult result{item.group, item.name, Outcome::pass, "", 0};
  const auto begin = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const Failed& failed) {
    result.outcome = Outcome::fail;
    result.message = failed.message;
  } catch (const Unavailable& unavailable) {
    result.outcome = Outcome::unavailable;
    result.message = unavailable.message;
  } catch (const Unsupported& unsupported) {
    result.outcome = Outcome::unsupported;
    result.message = unsupported.message;
  } catch (const std::exception& exception) {
    result.outcome = Outcome::fail;
    result.message = std::string("an exception came out of the driver or the suite: ") + exception.what();
  }
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

CaseResult run_one(const Case& item, const Context& context) {
  context.note.clear();
  CaseResult result = guarded(item, [&] { item.run(context); });
  if (result.outcome == Outcome::pass) result.message = context.note;
  return result;
}

// Memory with known contents. What a driver does not have must leave it, and the stream, as they are.
class Canary {
 public:
  explicit Canary(const Context& context) : context_(context), contents_(pattern(4096, 77)), memory_(context, 4096) {
    context.upload(memory_.data(), contents_.data(), contents_.size());
    check();
  }

  void check() const {
    context_.synchronize();
    expect_equal(context_.download(memory_.data(), contents_.size()), contents_, "memory of the suite");
  }

 private:
  const Context& context_;
  Bytes contents_;
  Memory memory_;
};

// Runs the cases that the filter takes.
void run_lists(const Lists& lists, const Context& context, std::string_view filter, std::vector<CaseResult>& results) {
  // Null for a driver that cannot even hold 4096 bytes: the cases of memory and copies say so.
  std::unique_ptr<Canary> canary;
  guarded({"setup", "canary", nullptr}, [&] { canary = std::make_unique<Canary>(context); });
  for (const auto& list : lists) {
    for (const Case& item : list) {
      if (!matches(filter, full_name(item))) continue;
      CaseResult result = run_one(item, context);
      if (result.outcome == Outcome::unsupported && canary) {
        const CaseResult checked = guarded(item, [&] { canary->check(); });
        if (checked.outcome != Outcome::pass) {
          result.outcome = Outcome::fail;
          result.message += "; but not without side effects: " + checked.message;
        }
      }
      results.push_back(std::move(result));
    }
  }
}

// Puts down that none of the cases could run.
void give_up(const Lists& lists, Outcome outcome, const std::string& why, std::string_view filter,
             std::vector<CaseResult>& results) {
  for (const auto& list : lists) {
    for (const Case& item : list) {
      if (matches(filter, full_name(item))) results.push_back({item.group, item.name, outcome, why, 0});
    }
  }
}

bool any_matches(const Lists& lists, std::string_view filter) {
  for (const auto& list : lists) {
    for (const Case& item : list) {
      if (matches(filter, full_name(item))) return true;
    }
  }
  return false;
}

// The ops of the driver's own extension, on the handles of the suite.
class DriverOps final : public OpProvider {
 public:
  explicit DriverOps(const Context& context) : context_(context) {
    const void* table = nullptr;
    if (context.drop(context.driver.query_extension(context.instance, AA_OPS_EXTENSION, AA_OPS_VERSION, &table))) {
      table_ = static_cast<const aa_ops_table*>(table);
    }
  }

  aa_instance* instance() override { return context_.instance; }
  aa_device* device() override { return context_.device; }
  aa_stream* stream() override { return context_.stream; }
  int32_t find(const char* name) override {
    int32_t op = -1;
    if (!table_) return -1;
    aa_status* status = table_->find(context_.instance, name, &op);
    const int32_t code = context_.host.status_code(status);
    if (code == AA_NOT_FOUND || code == AA_UNIMPLEMENTED) {
      context_.drop(status);
      return -1;
    }
    context_.ok(status, std::string("find of \"") + name + "\"");
    context_.expect(op >= 0, "find gave a negative number");
    return op;
  }
  bool supports(const aa_op_call& call) override {
    int32_t supported = -1;
    context_.ok(table_->supports(context_.device, &call, &supported), "supports");
    context_.expect(supported == 0 || supported == 1, "supports gave neither 0 nor 1");
    return supported == 1;
  }
  aa_status* enqueue(const aa_op_call& call) override { return table_->enqueue(context_.stream, &call); }
  std::string source(const aa_op_call&) override { return "driver"; }

 private:
  const Context& context_;
  const aa_ops_table* table_ = nullptr;
};

// Opens the driver, device 0 and a stream. Returns why not, or "".
std::string open(Context& context, Outcome& outcome) {
  const Case steps[] = {
      {"setup", "initialize",
       [](const Context& c) {
         // An unknown option must be ignored.
         const aa_option option = {"an_option_nobody_knows", "1"};
         aa_initialize_params params{};
         params.struct_size = sizeof(params);
         params.option_count = 1;
         params.options = &option;
         c.ok(c.driver.initialize(&params, &const_cast<Context&>(c).instance), "initialize");
         c.expect(c.instance != nullptr, "initialize succeeded but gave a null instance");
       }},
      {"setup", "open",
       [](const Context& c) {
         auto& context = const_cast<Context&>(c);
         context.props.struct_size = sizeof(aa_device_props);
         c.ok(c.driver.device_props(c.instance, 0, &context.props), "device_props of device 0");
         c.ok(c.driver.device_open(c.instance, 0, &context.device), "device_open of device 0");
         c.expect(c.device != nullptr, "device_open succeeded but gave a null device");
         c.ok(c.driver.stream_create(c.device, 0, AA_STREAM_NON_BLOCKING, &context.stream), "stream_create");
         c.expect(c.stream != nullptr, "stream_create succeeded but gave a null stream");
       }},
  };
  for (const Case& step : steps) {
    const CaseResult result = run_one(step, context);
    outcome = result.outcome;
    if (outcome != Outcome::pass) return result.message;
  }
  return "";
}

CaseResult close(Context& context) {
  static constexpr Case step = {"life", "closes_without_error", [](const Context& c) {
                                  if (c.stream) c.ok(c.driver.stream_destroy(c.stream), "stream_destroy");
                                  if (c.device) c.ok(c.driver.device_close(c.device), "device_close");
                                  if (c.instance) c.ok(c.driver.shutdown(c.instance), "shutdown");
                                }};
  return run_one(step, context);
}

// The cases of ops on a host's ops over the driver, which is initialized once more.
void run_on_provider(const Context& closed, const MakeOpProvider& make_ops, std::string_view filter,
                     std::vector<CaseResult>& results) {
  std::unique_ptr<OpProvider> provider;
  try {
    provider = make_ops(&closed.driver);
  } catch (const std::exception& exception) {
    give_up(op_lists(), Outcome::fail, std::string("the ops could not be opened: ") + exception.what(), filter,
            results);
    return;
  }
  Context context(&closed.driver, &closed.host);
  context.probe = closed.probe;
  context.props = closed.props;
  context.instance = provider->instance();
  context.device = provider->device();
  context.stream = provider->stream();
  context.ops = provider.get();
  run_lists(op_lists(), context, filter, results);
}

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
                       const MakeOpProvider& make_ops) {
  Report report;
  std::vector<CaseResult>& results = report.cases;
  driver = counted(*driver, host);
  Context context(driver, host);
  for (const Case& item : probe_cases()) {
    if (matches(filter, full_name(item))) results.push_back(run_one(item, context));
  }

  context.probe.struct_size = sizeof(aa_probe);
  std::string why;
  Outcome otherwise = Outcome::unavailable;
  if (!context.drop(driver->probe(&context.probe))) {
    why = "probe failed";
  } else if (context.probe.state != AA_PROBE_USABLE) {
    context.probe.reason[AA_PROBE_REASON_SIZE - 1] = '\0';
    why = std::string("the accelerator cannot be used here: ") + context.probe.reason;
  } else {
    why = open(context, otherwise);
  }

  const bool wants_ops = any_matches(op_lists(), filter);
  if (why.empty()) {
    run_lists(device_lists(), context, filter, results);
    if (wants_ops && !make_ops) {
      DriverOps ops(context);
      context.ops = &ops;
      run_lists(op_lists(), context, filter, results);
      context.ops = nullptr;
    }
  } else {
    give_up(device_lists(), otherwise, why, filter, results);
    give_up(op_lists(), otherwise, why, filter, results);
  }
  const CaseResult closed = close(context);
  if (closed.outcome == Outcome::fail || (why.empty() && matches(filter, "life.closes_without_error"))) {
    results.push_back(closed);
  }
  if (why.empty() && wants_ops && make_ops) run_on_provider(context, make_ops, filter, results);
  report.coverage = coverage();
  return report;
}

std::vector<std::string> conformance_cases() {
  std::vector<std::string> names;
  for (const auto& lists : {Lists{probe_cases()}, device_lists(), op_lists()}) {
    for (const auto& list : lists) {
      for (const Case& item : list) names.push_back(full_name(item));
    }
  }
  names.emplace_back("life.closes_without_error");
  return names;
}

}  // namespace anyaccel::conformance
