// Implements case_run.h: runs one case of the suite from opening the driver to closing it.
#include "conformance/case_run.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>

#include "runtime/driver/host_services.h"

namespace anyaccel::conformance {
namespace {

struct Result {
  Outcome outcome = Outcome::pass;
  std::string message;
};

template <class Body>
Result guarded(const Body& body) {
  try {
    body();
  } catch (const Failed& failed) {
    return {Outcome::fail, failed.message};
  } catch (const Unavailable& unavailable) {
    return {Outcome::unavailable, unavailable.message};
  } catch (const Unsupported& unsupported) {
    return {Outcome::unsupported, unsupported.message};
  } catch (const std::exception& exception) {
    return {Outcome::fail, std::string("an exception came out of the driver or the suite: ") + exception.what()};
  }
  return {};
}

// Memory with known contents. A call of a feature that the driver lacks must not change the memory or the stream.
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

// The ops of the driver's own extension, on the handles of the suite.
class DriverOps final : public OpProvider {
 public:
  explicit DriverOps(const Context& context) : context_(context) {
    const void* table = nullptr;
    if (context.drop(context.driver.query_extension(context.instance, AA_OPS_EXTENSION, AA_OPS_VERSION, &table))) {
      table_ = static_cast<const abi::Calls<aa_ops_table>*>(table);
    }
  }

  aa_instance* instance() override { return context_.instance; }
  aa_device* device() override { return context_.device; }
  aa_stream* stream() override { return context_.stream; }
  int32_t find(const char* name) override {
    int32_t op = -1;
    if (!table_) return -1;
    aa_status* status = table_->find(context_.instance, name, &op);
    const int32_t code = context_.host.status_code(&context_.host, status);
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
  aa_status* enqueue(const aa_op_call& call) override {
    int32_t taken = -1;
    aa_status* status = table_->enqueue(context_.stream, &call, &taken);
    if (status) return status;
    spoil_scratch(context_.stream);
    context_.expect(taken == 0 || taken == 1, "enqueue wrote neither 0 nor 1 to out_taken");
    if (taken == 1) return nullptr;
    constexpr std::string_view message = "enqueue did not take the call";
    return context_.host.status_create(&context_.host, AA_UNIMPLEMENTED, 0, message.data(), message.size());
  }
  std::string source(const aa_op_call&) override { return "driver"; }

 private:
  const Context& context_;
  const abi::Calls<aa_ops_table>* table_ = nullptr;
};

// Throws as cases do.
void open_all(Context& c) {
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  c.ok(c.driver.initialize(&params, &c.instance), "initialize");
  c.expect(c.instance != nullptr, "initialize succeeded but gave a null instance");
  c.props.struct_size = sizeof(aa_device_props);
  c.ok(c.driver.device_props(c.instance, 0, &c.props), "device_props of device 0");
  c.ok(c.driver.device_open(c.instance, 0, &c.device), "device_open of device 0");
  c.expect(c.device != nullptr, "device_open succeeded but gave a null device");
  c.ok(c.driver.stream_create(c.device, 0, AA_STREAM_NON_BLOCKING, &c.stream), "stream_create");
  c.expect(c.stream != nullptr, "stream_create succeeded but gave a null stream");
}

// Closes whatever `open_all` managed to open; returns why that failed, or "".
std::string close_all(const Context& c) {
  return guarded([&] {
           if (c.stream) c.ok(c.driver.stream_destroy(c.stream), "stream_destroy");
           if (c.device) c.ok(c.driver.device_close(c.device), "device_close");
           if (c.instance) c.ok(c.driver.shutdown(c.instance), "shutdown");
         })
      .message;
}

// Runs the case, and if the driver does not support it, checks that it had no side effects.
Result run_watched(const Case& item, const Context& context) {
  // Null if the driver cannot even allocate 4096 bytes, which the cases of memory and copies report.
  std::unique_ptr<Canary> canary;
  if (context.device) guarded([&] { canary = std::make_unique<Canary>(context); });
  const int64_t statuses = live_status_count();
  Result result = guarded([&] { item.run(context); });
  if (result.outcome == Outcome::pass) result.message = context.note;
  // The caller releases every status that it receives, so those that are left were created inside the driver and never
  // released.
  if (const int64_t left = live_status_count() - statuses; left > 0 && result.outcome != Outcome::fail) {
    result = {Outcome::fail, std::to_string(left) + " status objects were made and not given back"};
  }
  if (const int64_t kept = scratch_in_use(); kept > 0 && result.outcome != Outcome::fail) {
    result = {Outcome::fail,
              std::to_string(kept) +
                  " blocks of scratch memory were not given back before the calls returned in which they "
                  "were acquired"};
  }
  if (result.outcome == Outcome::unsupported && canary) {
    const Result checked = guarded([&] { canary->check(); });
    if (checked.outcome != Outcome::pass) {
      result.outcome = Outcome::fail;
      result.message += "; but not without side effects: " + checked.message;
    }
  }
  return result;
}

// Runs `body`, which opens the objects it needs and returns the case's result, then `close`, which returns why it
// failed; fills `slot`.
template <class Body, class Close>
void account(Context& context, Slot& slot, const Body& body, const Close& close) {
  const auto begin = std::chrono::steady_clock::now();
  const Result result = body();
  slot.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  slot.outcome = result.outcome;
  put_text(slot.message, result.message);
  slot.asked = context.asked & context.props.caps;
  slot.stage = Stage::closing;
  put_text(slot.closing_error, close());
  slot.ops_found = ops_found();
  slot.ops_run = ops_run();
  const std::vector<FunctionCoverage> rows = coverage();
  for (size_t i = 0; i < std::min(rows.size(), Slot::most_functions); ++i) {
    slot.calls[i] = rows[i].calls;
    slot.unimplemented[i] = rows[i].unimplemented;
  }
  slot.stage = Stage::finished;
}

Result run_opened(const Case& item, Context& context, bool with_ops, Slot& slot) {
  const Result opened = guarded([&] { open_all(context); });
  if (opened.outcome != Outcome::pass) return opened;
  DriverOps ops(context);
  if (with_ops) context.ops = &ops;
  slot.stage = Stage::running;
  const Result result = run_watched(item, context);
  context.ops = nullptr;
  return result;
}

// On the handles of a host's ops, which opens the driver itself.
Result run_on_provider(const Case& item, Context& context, const MakeOpProvider& make_ops, Slot& slot) {
  std::unique_ptr<OpProvider> provider;
  const Result opened = guarded([&] {
    provider = make_ops(&context.driver);
    context.instance = provider->instance();
    context.device = provider->device();
    context.stream = provider->stream();
    context.props.struct_size = sizeof(aa_device_props);
    context.ok(context.driver.device_props(context.instance, 0, &context.props), "device_props of device 0");
  });
  if (opened.outcome != Outcome::pass) return {opened.outcome, "the ops could not be opened: " + opened.message};
  context.ops = provider.get();
  slot.stage = Stage::running;
  Result result = run_watched(item, context);
  context.ops = nullptr;
  context.instance = nullptr;  // the provider closes what it opened
  context.device = nullptr;
  context.stream = nullptr;
  return result;
}

}  // namespace

void run_case(const Driver& driver, const Case& item, Setting setting, const aa_probe& probe, bool closes, Slot& slot) {
  Context context(counted(*driver.table, driver.host, driver.with), driver.host);
  context.probe = probe;
  context.form = item.form;
  const auto body = [&]() -> Result {
    if (setting == Setting::table) {
      slot.stage = Stage::running;
      return run_watched(item, context);
    }
    const bool with_ops = setting == Setting::with_ops;
    // Only the suite's own host refuses scratch memory, and only a driver's own ops ask for any.
    const bool provided = *driver.make_ops && item.form != TensorForm::short_of_memory;
    if (with_ops && provided) return run_on_provider(item, context, *driver.make_ops, slot);
    return run_opened(item, context, with_ops, slot);
  };
  account(context, slot, body, [&] { return closes ? close_all(context) : std::string(); });
}

void run_opening(const Driver& driver, bool closes, Slot& slot) {
  Context context(counted(*driver.table, driver.host, driver.with), driver.host);
  const auto body = [&]() -> Result {
    context.probe.struct_size = sizeof(aa_probe);
    Result result = guarded([&] { context.ok(context.driver.probe(&context.probe), "probe"); });
    slot.probe = context.probe;
    if (result.outcome != Outcome::pass) return result;
    if (context.probe.state != AA_PROBE_USABLE) {
      context.probe.reason[AA_PROBE_REASON_SIZE - 1] = '\0';
      return {Outcome::unavailable, std::string("the accelerator cannot be used here: ") + context.probe.reason};
    }
    result = guarded([&] { open_all(context); });
    slot.caps = context.props.caps;
    return result;
  };
  account(context, slot, body, [&] { return closes ? close_all(context) : std::string(); });
}

}  // namespace anyaccel::conformance
