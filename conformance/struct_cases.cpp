// Cases of the rules that base.h states for every struct: unknown flags and hints, and sizes of a newer and an older host.
#include <cstddef>
#include <cstring>

#include "anyaccel/abi/host_memory.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace struct_group {
namespace {

constexpr size_t size = 4096;
constexpr uint32_t unknown = 1u << 31;

template <class Struct>
Struct sized() {
  return abi::sized<Struct>();
}

aa_copy copy_of(void* destination, const void* source, int32_t direction) {
  auto what = sized<aa_copy>();
  what.destination = destination;
  what.source = source;
  what.size = size;
  what.direction = direction;
  return what;
}

aa_fill fill_of(void* destination, unsigned char value) {
  auto what = sized<aa_fill>();
  what.destination = destination;
  what.size = size;
  what.pattern_size = 1;
  what.pattern[0] = value;
  return what;
}

aa_alloc memory_of(int32_t kind) {
  auto what = sized<aa_alloc>();
  what.kind = kind;
  what.numa_node = -1;
  what.size = size;
  return what;
}

// "A driver rejects bits that it does not know in a member called `flags` with AA_UNIMPLEMENTED, having done nothing."
void unknown_flags_are_refused(const Context& c) {
  Memory memory(c, size);
  const Bytes before = pattern(size, 1), other = pattern(size, 2);
  c.upload(memory.data(), before.data(), size);
  const auto refused = [&](aa_status* status, const std::string& function) {
    c.error(status, {AA_UNIMPLEMENTED}, function + " with an unknown bit in flags");
  };
  aa_copy copy = copy_of(memory.data(), other.data(), AA_COPY_HOST_TO_DEVICE);
  copy.flags = unknown;
  refused(c.driver.copy_async(c.stream, &copy), "copy_async");
  aa_fill fill = fill_of(memory.data(), 9);
  fill.flags = unknown;
  refused(c.driver.fill_async(c.stream, &fill), "fill_async");
  for (const int32_t kind : {AA_MEMORY_DEVICE, AA_MEMORY_PINNED}) {
    aa_alloc alloc = memory_of(kind);
    alloc.flags = unknown;
    auto given = sized<aa_allocation>();
    aa_status* const status = c.driver.mem_alloc(c.device, &alloc, &given);
    // What a driver gives nevertheless is released before the case fails.
    if (status == nullptr) c.drop(c.driver.mem_free(c.device, kind, given.pointer, size));
    refused(status, "mem_alloc");
    c.expect(given.pointer == nullptr, "mem_alloc was refused but wrote a pointer");
  }
  auto stream = sized<aa_stream_params>();
  stream.flags = AA_STREAM_NON_BLOCKING | unknown;
  aa_stream* made = nullptr;
  aa_status* const stream_status = c.driver.stream_create(c.device, &stream, &made);
  if (stream_status == nullptr) c.drop(c.driver.stream_destroy(made));
  refused(stream_status, "stream_create");
  c.expect(made == nullptr, "stream_create was refused but gave a stream");
  auto event = sized<aa_event_params>();
  event.flags = AA_EVENT_TIMING | unknown;
  aa_event* recorded = nullptr;
  aa_status* const event_status = c.driver.event_create(c.device, &event, &recorded);
  if (event_status == nullptr) c.drop(c.driver.event_destroy(recorded));
  refused(event_status, "event_create");
  c.expect(recorded == nullptr, "event_create was refused but gave an event");
  c.synchronize();
  expect_equal(c.download(memory.data(), size), before, "memory that only refused calls were to write");
}

void unknown_flags_of_ranges_are_refused(const Context& c) {
  const auto table = c.extension<aa_host_memory_table>(AA_HOST_MEMORY_EXTENSION, AA_HOST_MEMORY_VERSION);
  alignas(4096) static unsigned char page[size];
  auto what = sized<aa_register>();
  what.pointer = page;
  what.size = size;
  what.flags = unknown;
  auto registration = sized<aa_registration>();
  aa_status* const status = table.register_range(c.device, &what, &registration);
  if (status == nullptr) c.drop(table.unregister_range(c.device, page));
  c.error(status, {AA_UNIMPLEMENTED}, "register_range with an unknown bit in flags");
}

// "It ignores unknown bits in a member called `hints`."
void unknown_hints_are_ignored(const Context& c) {
  auto params = sized<aa_stream_params>();
  params.hints = unknown;
  params.flags = AA_STREAM_NON_BLOCKING;
  aa_stream* stream = nullptr;
  c.ok(c.driver.stream_create(c.device, &params, &stream), "stream_create with an unknown bit in hints");
  c.ok(c.driver.stream_destroy(stream), "stream_destroy");
  Memory memory(c, size);
  const Bytes data = pattern(size, 3);
  aa_copy copy = copy_of(memory.data(), data.data(), AA_COPY_HOST_TO_DEVICE);
  copy.hints = unknown;
  c.ok(c.driver.copy_async(c.stream, &copy), "copy_async with an unknown bit in hints");
  c.synchronize();
  expect_equal(c.download(memory.data(), size), data, "what a copy with an unknown bit in hints wrote");
  aa_fill fill = fill_of(memory.data(), 7);
  c.ok_or_unsupported(c.driver.fill_async(c.stream, &fill), "fill_async");
  fill.pattern[0] = 8;
  fill.hints = unknown;
  c.ok(c.driver.fill_async(c.stream, &fill), "fill_async with an unknown bit in hints");
  c.synchronize();
  expect_equal(c.download(memory.data(), size), Bytes(size, 8), "what a fill with an unknown bit in hints wrote");
}

// A struct as a host of a later version passes it: with members behind those that this version knows.
template <class Struct>
struct Longer {
  explicit Longer(Struct given) : known(given) {
    known.struct_size = sizeof(Longer);
    std::memset(later, 0x5a, sizeof(later));
  }
  Struct known;
  unsigned char later[64];
};

void longer_ones_are_accepted(const Context& c) {
  const Longer alloc(memory_of(AA_MEMORY_DEVICE));
  Longer given(aa_allocation{});
  c.ok(c.driver.mem_alloc(c.device, &alloc.known, &given.known), "mem_alloc with longer structs");
  const Bytes data = pattern(size, 4);
  const Longer copy(copy_of(given.known.pointer, data.data(), AA_COPY_HOST_TO_DEVICE));
  const bool copied = c.drop(c.driver.copy_async(c.stream, &copy.known));
  const bool synchronized = c.drop(c.driver.stream_synchronize(c.stream));
  Bytes found(size);
  const Longer back(copy_of(found.data(), given.known.pointer, AA_COPY_DEVICE_TO_HOST));
  const bool copied_back = c.drop(c.driver.copy_async(c.stream, &back.known));
  const bool ended = c.drop(c.driver.stream_synchronize(c.stream));
  Longer info(aa_memory_info{});
  aa_status* const query = c.driver.mem_query(c.instance, given.known.pointer, &info.known);
  const bool lacks_query = query && c.host.status_code(&c.host, query) == AA_UNIMPLEMENTED;
  const bool queried = c.drop(query) || lacks_query;
  const Longer fill(fill_of(given.known.pointer, 1));
  aa_status* const filling = c.driver.fill_async(c.stream, &fill.known);
  const bool lacks_fill = filling && c.host.status_code(&c.host, filling) == AA_UNIMPLEMENTED;
  const bool filled = c.drop(filling) || lacks_fill;
  c.drop(c.driver.stream_synchronize(c.stream));
  c.ok(c.driver.mem_free(c.device, &given.known), "mem_free with a longer struct");
  c.expect(copied && synchronized && copied_back && ended, "copy_async refused a longer struct");
  expect_equal(found, data, "what copies with longer structs brought back");
  c.expect(queried, "mem_query refused a longer struct");
  c.expect(filled, "fill_async refused a longer struct");
  auto stream_params = sized<aa_stream_params>();
  stream_params.flags = AA_STREAM_NON_BLOCKING;
  const Longer longer_stream(stream_params);
  aa_stream* stream = nullptr;
  c.ok(c.driver.stream_create(c.device, &longer_stream.known, &stream), "stream_create with a longer struct");
  c.ok(c.driver.stream_destroy(stream), "stream_destroy");
  const Longer longer_event(aa_event_params{});
  aa_event* event = nullptr;
  c.ok_or_unsupported(c.driver.event_create(c.device, &longer_event.known, &event),
                      "event_create with a longer struct");
  c.ok(c.driver.event_destroy(event), "event_destroy");
}

// Opens the driver itself: a device is not opened again while it is open.
void opening_follows_the_same_rules(const Context& c) {
  aa_probe probe{};
  probe.struct_size = sizeof(probe);
  c.ok(c.driver.probe(&probe), "probe");
  if (probe.state != AA_PROBE_USABLE) {
    c.unavailable("the accelerator cannot be used here: " +
                  std::string(probe.reason, strnlen(probe.reason, sizeof(probe.reason))));
  }
  const Longer settings(aa_initialize_params{});
  aa_instance* instance = nullptr;
  c.ok(c.driver.initialize(&settings.known, &instance), "initialize with a longer struct");
  auto params = sized<aa_device_open_params>();
  params.flags = unknown;
  aa_device* device = nullptr;
  aa_status* const status = c.driver.device_open(instance, &params, &device);
  if (status == nullptr) {
    c.drop(c.driver.device_close(device));
    c.drop(c.driver.shutdown(instance));
  }
  c.error(status, {AA_UNIMPLEMENTED}, "device_open with an unknown bit in flags");
  c.expect(device == nullptr, "device_open was refused but gave a device");
  params.flags = 0;
  const Longer longer(params);
  c.ok(c.driver.device_open(instance, &longer.known, &device), "device_open with a longer struct");
  c.ok(c.driver.device_close(device), "device_close");
  c.ok(c.driver.shutdown(instance), "shutdown");
}

// Out structs of a host that does not know the last members.
void shorter_answers_fit(const Context& c) {
  const aa_alloc alloc = memory_of(AA_MEMORY_DEVICE);
  aa_allocation given;
  std::memset(static_cast<void*>(&given), 0x5a, sizeof(given));
  given.struct_size = offsetof(aa_allocation, memory);
  c.ok(c.driver.mem_alloc(c.device, &alloc, &given), "mem_alloc with a short struct_size");
  void* const pointer = given.pointer;
  aa_memory_info info;
  std::memset(static_cast<void*>(&info), 0x5a, sizeof(info));
  info.struct_size = offsetof(aa_memory_info, device_address);
  aa_status* const query = c.driver.mem_query(c.instance, pointer, &info);
  const bool lacks_query = query && c.host.status_code(&c.host, query) == AA_UNIMPLEMENTED;
  const bool queried = c.drop(query);
  c.ok(c.driver.mem_free(c.device, AA_MEMORY_DEVICE, pointer, size), "mem_free");
  const auto untouched = [&](const auto& out, size_t from, const std::string& function) {
    c.expect(out.struct_size == from, function + " changed struct_size");
    const auto* bytes = reinterpret_cast<const unsigned char*>(&out);
    for (size_t i = from; i < sizeof(out); ++i) c.expect(bytes[i] == 0x5a, function + " wrote beyond struct_size");
  };
  untouched(given, offsetof(aa_allocation, memory), "mem_alloc");
  if (lacks_query) return;
  c.expect(queried, "mem_query with a short struct_size failed");
  untouched(info, offsetof(aa_memory_info, device_address), "mem_query");
  c.expect(info.base == pointer, "mem_query with a short struct_size did not write what fits");
}

constexpr Case cases[] = {
    {"structs", "unknown_flags_are_refused", unknown_flags_are_refused},
    {"structs", "unknown_flags_of_ranges_are_refused", unknown_flags_of_ranges_are_refused},
    {"structs", "unknown_hints_are_ignored", unknown_hints_are_ignored},
    {"structs", "longer_ones_are_accepted", longer_ones_are_accepted},
    {"structs", "shorter_answers_fit", shorter_answers_fit},
};

constexpr Case unopened[] = {{"structs", "opening_follows_the_same_rules", opening_follows_the_same_rules}};

}  // namespace
}  // namespace struct_group

std::span<const Case> struct_cases() { return struct_group::cases; }
std::span<const Case> unopened_struct_cases() { return struct_group::unopened; }

}  // namespace anyaccel::conformance
