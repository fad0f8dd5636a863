// The toolbox of the conformance suite's cases: expectations, and owning wrappers of the driver's objects.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/abi/driver.h"
#include "conformance/tables.h"

namespace anyaccel::conformance {

using Bytes = std::vector<unsigned char>;

// Thrown by the expectations; the runner turns them into outcomes.
struct Failed {
  std::string message;
};
struct Unavailable {
  std::string message;
};
struct Unsupported {
  std::string message;
};

// How the tensors of a case of ops differ from what the case says, so that the same calls with the same results test
// other layouts too.
enum class TensorForm {
  as_given,
  padded,    // tensors whose elements would be adjacent have gaps between their rows, and addresses aligned to nothing
  spread,    // ... and gaps between their elements
  in_place,  // outputs that may be an input are one
  null,      // tensors without elements have no memory
  short_of_memory  // as given; each call is first refused its scratch memory, one request after the other
};

class Context {
 public:
  // `table` is one of tables.h.
  Context(const abi::DriverCalls* table, const aa_host* services) : driver(*table), host(*services) {}

  const abi::DriverCalls& driver;
  const aa_host& host;
  // Set by the runner before cases that need them.
  aa_probe probe{};
  aa_instance* instance = nullptr;
  aa_device_props props{};
  aa_device* device = nullptr;
  aa_stream* stream = nullptr;
  OpProvider* ops = nullptr;
  TensorForm form = TensorForm::as_given;
  // The message of a case that passes.
  mutable std::string note;
  // The captures that are open: their streams cannot be waited for.
  mutable int captures = 0;
  // Every AA_CAP_* that the case queried: each promised one must be queried by a case that passes or fails.
  mutable uint64_t asked = 0;

  bool has(uint64_t capability) const noexcept {
    asked |= capability;
    return (props.caps & capability) != 0;
  }

  // The same, for a case that does not test the promise itself.
  bool promises(uint64_t capability) const noexcept { return (props.caps & capability) != 0; }

  // -- expectations; each throws if it is not met --
  void expect(bool condition, const std::string& what) const;
  // Success. AA_UNAVAILABLE makes the case `unavailable`.
  void ok(aa_status* status, const std::string& what) const;
  // Success; but AA_UNIMPLEMENTED makes the case `unsupported`.
  void ok_or_unsupported(aa_status* status, const std::string& what) const;
  // An error with one of the codes, and a message.
  void error(aa_status* status, std::initializer_list<aa_code> codes, const std::string& what) const;
  // Any error that has a message.
  void any_error(aa_status* status, const std::string& what) const;
  // Releases a status; returns true for success.
  bool drop(aa_status* status) const noexcept;
  [[noreturn]] void unsupported(const std::string& why) const { throw Unsupported{why}; }
  [[noreturn]] void unavailable(const std::string& why) const { throw Unavailable{why}; }

  // -- data --
  // Copies on `stream` and waits.
  void upload(void* destination, const void* source, size_t size) const;
  void download(void* destination, const void* source, size_t size) const;
  Bytes download(const void* source, size_t size) const;
  void synchronize() const { ok(driver.stream_synchronize(stream), "stream_synchronize"); }

  // Returns a copy of the extension's table that counts calls and has stubs for missing functions; ends the case as
  // unsupported if the driver lacks the extension.
  template <class Table>
  abi::Calls<Table> extension(const char* name, uint32_t version) const {
    const auto* table = static_cast<const abi::Calls<Table>*>(find_extension(name, version));
    expect(table->struct_size >= 2 * sizeof(uint32_t) && table->struct_size < 65536 && table->version >= version,
           std::string("the table of extension \"") + name + "\" has an absurd size or an older version");
    return *table;
  }

 private:
  const void* find_extension(const char* name, uint32_t version) const;
  std::string describe(aa_status* status) const;
};

// Bytes that differ from place to place and from seed to seed.
Bytes pattern(size_t size, unsigned seed);
// Fails naming the first place that differs.
void expect_equal(std::span<const unsigned char> found, std::span<const unsigned char> expected,
                  const std::string& what);

// Memory of the driver.
class Memory {
 public:
  Memory(const Context& context, size_t size, int32_t kind = AA_MEMORY_DEVICE);
  ~Memory() { free(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() const noexcept { return static_cast<unsigned char*>(pointer_); }
  size_t size() const noexcept { return size_; }
  void free();

 private:
  const Context& context_;
  size_t size_;
  int32_t kind_;
  void* pointer_ = nullptr;
};

class Stream {
 public:
  explicit Stream(const Context& context, int32_t priority = 0, uint32_t flags = AA_STREAM_NON_BLOCKING);
  ~Stream() { destroy(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator aa_stream*() const noexcept { return stream_; }
  void destroy();

 private:
  const Context& context_;
  aa_stream* stream_ = nullptr;
};

// Ends the case as unsupported when the driver has no events.
class Event {
 public:
  explicit Event(const Context& context, uint32_t flags = AA_EVENT_DEFAULT);
  ~Event() { destroy(); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  operator aa_event*() const noexcept { return event_; }
  void destroy();

 private:
  const Context& context_;
  aa_event* event_ = nullptr;
};

// ---- cases ----

struct Case {
  const char* group;
  const char* name;
  void (*run)(const Context& context);
  TensorForm form = TensorForm::as_given;
};

// One list for each file of cases; the runner has them in this order.
std::span<const Case> probe_cases();            // needs neither instance nor device, and opens none in this process
std::span<const Case> unopened_device_cases();  // open the driver themselves
std::span<const Case> unopened_struct_cases();
std::span<const Case> device_cases();
std::span<const Case> struct_cases();
std::span<const Case> memory_cases();
std::span<const Case> copy_cases();
std::span<const Case> stream_cases();
std::span<const Case> event_cases();
std::span<const Case> order_cases();
std::span<const Case> order_event_cases();
std::span<const Case> order_waiting_cases();
std::span<const Case> order_item_cases();
std::span<const Case> lazy_cases();
std::span<const Case> fault_cases();
std::span<const Case> growth_cases();
std::span<const Case> many_device_cases();
std::span<const Case> kernel_cases();
std::span<const Case> graph_cases();
std::span<const Case> host_memory_cases();
std::span<const Case> memory_kind_cases();
std::span<const Case> file_cases();
std::span<const Case> profiler_cases();
std::span<const Case> collectives_cases();
std::span<const Case> exhaustion_cases();
std::span<const Case> fork_cases();
std::span<const Case> thread_cases();
std::span<const Case> host_code_cases();
std::span<const Case> op_table_cases();
std::span<const Case> pack_cases();

// These run on the handles of an OpProvider.
std::span<const Case> random_cases();
std::span<const Case> elementwise_cases();
std::span<const Case> row_cases();
std::span<const Case> product_cases();
std::span<const Case> fused_cases();
std::span<const Case> attention_cases();
std::span<const Case> sampling_cases();
std::span<const Case> training_cases();
std::span<const Case> special_value_cases();
std::span<const Case> training_special_cases();
std::span<const Case> empty_cases();
std::span<const Case> by_row_cases();
std::span<const Case> op_graph_cases();
std::span<const Case> op_size_cases();
std::span<const Case> training_size_cases();

}  // namespace anyaccel::conformance
