// The runner of the conformance suite.
#include "conformance/suite.h"

#include <array>
#include <exception>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace {

bool matches(std::string_view filter, const std::string& name) {
  if (filter.empty()) return true;
  while (!filter.empty()) {
    const size_t comma = filter.find(',');
    const std::string_view part = filter.substr(0, comma);
    if (!part.empty() && name.find(part) != std::string::npos) return true;
    filter = comma == std::string_view::npos ? std::string_view() : filter.substr(comma + 1);
  }
  return false;
}

std::string full_name(const Case& item) { return std::string(item.group) + "." + item.name; }

// The lists after probing.
std::vector<std::span<const Case>> device_lists() {
  return {device_cases(), memory_cases(), copy_cases(),        stream_cases(),   event_cases(),
          kernel_cases(), graph_cases(),  host_memory_cases(), profiler_cases(), op_cases()};
}

CaseResult run_one(const Case& item, const Context& context) {
  CaseResult result{item.group, item.name, Outcome::pass, ""};
  try {
    item.run(context);
  } catch (const Failed& failed) {
    result.outcome = Outcome::fail;
    result.message = failed.message;
  } catch (const Skipped& skipped) {
    result.outcome = Outcome::skip;
    result.message = skipped.message;
  } catch (const Unsupported& unsupported) {
    result.outcome = Outcome::unsupported;
    result.message = unsupported.message;
  } catch (const std::exception& exception) {
    result.outcome = Outcome::fail;
    result.message = std::string("an exception came out of the driver or the suite: ") + exception.what();
  }
  return result;
}

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

}  // namespace

const char* outcome_name(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::pass: return "pass";
    case Outcome::fail: return "fail";
    case Outcome::skip: return "skip";
    case Outcome::unsupported: return "unsupported";
  }
  return "";
}

std::vector<CaseResult> run_conformance(const aa_driver* driver, const aa_host* host, std::string_view filter) {
  set_stub_host(host);
  const aa_driver table = completed(*driver);
  driver = &table;
  Context context(driver, host);
  std::vector<CaseResult> results;
  for (const Case& item : probe_cases()) {
    if (matches(filter, full_name(item))) results.push_back(run_one(item, context));
  }

  context.probe.struct_size = sizeof(aa_probe);
  std::string why;
  Outcome otherwise = Outcome::skip;
  if (!context.drop(driver->probe(&context.probe))) {
    why = "probe failed";
  } else if (context.probe.state != AA_PROBE_USABLE) {
    context.probe.reason[AA_PROBE_REASON_SIZE - 1] = '\0';
    why = std::string("the accelerator cannot be used here: ") + context.probe.reason;
  } else {
    why = open(context, otherwise);
  }

  for (const auto& list : device_lists()) {
    for (const Case& item : list) {
      if (!matches(filter, full_name(item))) continue;
      if (why.empty()) {
        results.push_back(run_one(item, context));
      } else {
        results.push_back({item.group, item.name, otherwise, why});
      }
    }
  }
  const CaseResult closed = close(context);
  if (closed.outcome == Outcome::fail || (why.empty() && matches(filter, "life.closes_without_error"))) {
    results.push_back(closed);
  }
  return results;
}

std::vector<std::string> conformance_cases() {
  std::vector<std::string> names;
  for (const Case& item : probe_cases()) names.push_back(full_name(item));
  for (const auto& list : device_lists()) {
    for (const Case& item : list) names.push_back(full_name(item));
  }
  names.emplace_back("life.closes_without_error");
  return names;
}

}  // namespace anyaccel::conformance
