// Cases of devices other than the first: each by itself, together with the first, and waiting for each other. A driver
// that shows one device only answers "unsupported".
#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "anyaccel/abi/peer.h"
#include "conformance/gate.h"

namespace anyaccel::conformance {
namespace many_device_group {
namespace {

constexpr size_t size = 100000;

// A context of another device of the same instance, and a stream there.
class Opened {
 public:
  Opened(const Context& c, aa_instance* instance, int32_t index) : context_(&c.driver, &c.host), index_(index) {
    context_.probe = c.probe;
    context_.instance = instance;
    context_.props.struct_size = sizeof(aa_device_props);
    context_.ok(c.driver.device_props(instance, index, &context_.props), "device_props" + text());
    context_.ok(c.driver.device_open(instance, index, &context_.device), "device_open" + text());
    context_.expect(context_.device != nullptr, "device_open" + text() + " gave a null device");
    context_.ok(c.driver.stream_create(context_.device, 0, AA_STREAM_NON_BLOCKING, &context_.stream),
                "stream_create" + text());
  }
  ~Opened() { close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  const Context& context() const noexcept { return context_; }
  std::string text() const { return " of device " + std::to_string(index_); }
  // The first error.
  std::string close() {
    std::string error;
    try {
      if (context_.stream) context_.ok(context_.driver.stream_destroy(context_.stream), "stream_destroy" + text());
      if (context_.device) context_.ok(context_.driver.device_close(context_.device), "device_close" + text());
    } catch (const Failed& failed) {
      error = failed.message;
    } catch (const Unavailable& unavailable) {
      error = unavailable.message;
    }
    context_.stream = nullptr;
    context_.device = nullptr;
    return error;
  }

 private:
  Context context_;
  int32_t index_;
};

void needs_another(const Context& c) {
  if (c.probe.device_count < 2) c.unsupported("there is one device");
}

// Memory, copies of each kind, streams and events.
void use(const Opened& opened, unsigned seed) {
  const Context& c = opened.context();
  Memory first(c, size);
  Memory second(c, size);
  const Bytes data = pattern(size, seed);
  c.upload(first.data(), data.data(), size);
  c.ok(c.driver.copy_async(c.stream, second.data(), first.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
  Event event(c);
  c.ok(c.driver.event_record(event, c.stream), "event_record");
  c.ok(c.driver.event_synchronize(event), "event_synchronize");
  expect_equal(c.download(second.data(), size), data, "what was copied within device" + opened.text());
  const unsigned char value = 5;
  aa_status* filled = c.driver.fill_async(c.stream, first.data(), &value, 1, size);
  if (c.drop(filled)) {
    c.ok(c.driver.device_synchronize(c.device), "device_synchronize" + opened.text());
    expect_equal(c.download(first.data(), size), Bytes(size, 5), "what was filled on" + opened.text());
  }
}

void each_beside_the_first(const Context& c) {
  needs_another(c);
  Memory own(c, size);
  const Bytes data = pattern(size, 1);
  c.upload(own.data(), data.data(), size);
  for (int32_t i = 1; i < c.probe.device_count; ++i) {
    Opened other(c, c.instance, i);
    use(other, static_cast<unsigned>(i));
    {
      Memory memory(other.context(), size);
      aa_memory_info info{};
      info.struct_size = sizeof(info);
      aa_status* status = c.driver.mem_query(c.instance, memory.data() + 7, &info);
      if (!status || c.host.status_code(&c.host, status) != AA_UNIMPLEMENTED) {
        c.ok(status, "mem_query");
        c.expect(info.device_index == i && info.base == memory.data(),
                 "mem_query says device " + std::to_string(info.device_index) + " for memory" + other.text());
      } else {
        c.drop(status);
      }
    }
    const std::string error = other.close();
    c.expect(error.empty(), error);
  }
  expect_equal(c.download(own.data(), size), data, "memory of device 0 after the others were used");
}

// On a thread that has used no device before, as a process group's or a data loader's is. A vendor's runtime has a current
// device for each thread, and begins with the first.
void each_on_a_new_thread(const Context& c) {
  needs_another(c);
  for (int32_t i = 1; i < c.probe.device_count; ++i) {
    Opened other(c, c.instance, i);
    std::exception_ptr caught;
    std::thread thread([&] {
      try {
        use(other, static_cast<unsigned>(i));
        Memory memory(other.context(), size);
        auto info = abi::sized<aa_memory_info>();
        aa_status* const status = c.driver.mem_query(c.instance, memory.data(), &info);
        const bool lacks = status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED;
        if (!c.drop(status)) c.expect(lacks, "mem_query does not know memory" + other.text());
        if (!lacks) {
          c.expect(info.device_index == i, "mem_alloc" + other.text() + " on a new thread gave memory of device " +
                                               std::to_string(info.device_index));
        }
      } catch (const Unsupported&) {
        // There are no events.
      } catch (...) {
        caught = std::current_exception();
      }
    });
    thread.join();
    if (caught) std::rethrow_exception(caught);
    const std::string closing = other.close();
    c.expect(closing.empty(), closing);
  }
}

// Without device 0: this case opens the driver itself.
void each_by_itself(const Context& c) {
  aa_probe probe{};
  probe.struct_size = sizeof(probe);
  c.ok(c.driver.probe(&probe), "probe");
  if (probe.state != AA_PROBE_USABLE) {
    c.unavailable("the accelerator cannot be used here: " +
                  std::string(probe.reason, strnlen(probe.reason, sizeof(probe.reason))));
  }
  if (probe.device_count < 2) c.unsupported("there is one device");
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  c.ok(c.driver.initialize(&params, &instance), "initialize");
  for (int32_t i = probe.device_count - 1; i >= 0; --i) {
    Opened other(c, instance, i);
    use(other, static_cast<unsigned>(i));
    const std::string error = other.close();
    c.expect(error.empty(), error);
  }
  c.ok(c.driver.shutdown(instance), "shutdown");
}

void copies_between_by_way_of_the_host(const Context& c) {
  needs_another(c);
  Opened other(c, c.instance, 1);
  Memory here(c, size);
  Memory there(other.context(), size);
  for (unsigned round = 0; round < 5; ++round) {
    const Bytes data = pattern(size, round);
    c.upload(here.data(), data.data(), size);
    const Bytes carried = c.download(here.data(), size);
    other.context().upload(there.data(), carried.data(), size);
    expect_equal(other.context().download(there.data(), size), data, "what was carried from device 0 to device 1");
  }
}

void a_stream_waits_for_another_devices_event(const Context& c) {
  needs_another(c);
  needs_gates(c);
  Opened other(c, c.instance, 1);
  Stream held(c);
  Event event(c);
  Memory memory(c, size);
  Watch watch(c);
  Gate gate(c, held);
  c.ok(c.driver.event_record(event, held), "event_record");
  c.ok_or_unsupported(c.driver.stream_wait_event(other.context().stream, event), "stream_wait_event");
  const bool early = watch.gets_done(other.context().stream);
  gate.open();
  c.ok(c.driver.stream_synchronize(other.context().stream), "stream_synchronize");
  int32_t late = -1;
  c.ok(c.driver.event_query(event, &late), "event_query");
  c.expect(!early, "a stream of device 1 does not wait for an event of device 0");
  c.expect(late == 1, "a stream of device 1 went on before the event of device 0");
}

void a_held_device_holds_no_other(const Context& c) {
  needs_another(c);
  needs_gates(c);
  Opened other(c, c.instance, 1);
  Stream held(c);
  Gate gate(c, held);
  c.ok(c.driver.device_synchronize(other.context().device), "device_synchronize of device 1 while device 0 is held");
  int32_t done = -1;
  c.ok(c.driver.stream_query(held, &done), "stream_query");
  gate.open();
  c.expect(done == 0, "a held stream of device 0 is done, since device 1 was synchronized");
}

void synchronizing_a_device_waits_for_its_own_streams(const Context& c) {
  needs_another(c);
  needs_gates(c);
  Opened other(c, c.instance, 1);
  {
    Stream held(other.context());
    Gate gate(other.context(), held);
    const LaterOpened later(gate);
    c.ok(c.driver.device_synchronize(other.context().device), "device_synchronize of device 1");
    c.expect(gate.is_open(), "device_synchronize of device 1 returned though a host call still held a stream there");
  }
}

void free_memory_is_each_devices_own(const Context& c) {
  needs_another(c);
  constexpr size_t large = size_t{32} << 20;
  Opened other(c, c.instance, 1);
  const auto free_of = [&](const Context& device) {
    int64_t free = -1, total = -1;
    c.ok_or_unsupported(c.driver.device_memory_info(device.device, &free, &total), "device_memory_info");
    return free;
  };
  // Other processes use the devices too, so several attempts are made.
  std::string found;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const int64_t first = free_of(c), second = free_of(other.context());
    int64_t first_moved = 0, second_moved = 0;
    {
      Memory memory(other.context(), large);
      const Bytes data = pattern(4096, 1);
      other.context().upload(memory.data(), data.data(), data.size());
      first_moved = first - free_of(c);
      second_moved = second - free_of(other.context());
    }
    // Devices that are parts of one, or use the host's memory, share what is free.
    if (second_moved >= static_cast<int64_t>(large / 2)) return;
    found = "device 0 has " + std::to_string(first_moved) + " bytes less and device 1 " + std::to_string(second_moved);
  }
  if (c.promises(AA_CAP_HOST_COHERENT)) c.unavailable("the devices use the host's memory, of which others take more");
  c.expect(false, "after mem_alloc of 32 MiB on device 1, " + found);
}

void elapsed_time_needs_one_device(const Context& c) {
  needs_another(c);
  if (!c.has(AA_CAP_EVENT_TIMING)) c.unsupported("AA_CAP_EVENT_TIMING is clear");
  Opened other(c, c.instance, 1);
  Event here(c, AA_EVENT_TIMING);
  Event there(other.context(), AA_EVENT_TIMING);
  c.ok(c.driver.event_record(here, c.stream), "event_record");
  c.ok(c.driver.event_record(there, other.context().stream), "event_record");
  c.ok(c.driver.event_synchronize(here), "event_synchronize");
  c.ok(c.driver.event_synchronize(there), "event_synchronize");
  double milliseconds = -5;
  c.error(c.driver.event_elapsed(here, there, &milliseconds), {AA_FAILED_PRECONDITION},
          "event_elapsed of events of two devices");
  c.expect(milliseconds == -5, "event_elapsed failed but wrote a time");
}

void devices_have_their_own_uuid(const Context& c) {
  needs_another(c);
  std::vector<std::string> uuids;
  for (int32_t i = 0; i < c.probe.device_count; ++i) {
    auto props = abi::sized<aa_device_props>();
    c.ok(c.driver.device_props(c.instance, i, &props), "device_props of device " + std::to_string(i));
    const std::string uuid(reinterpret_cast<const char*>(props.uuid), sizeof(props.uuid));
    if (uuid == std::string(sizeof(props.uuid), '\0')) continue;  // unknown
    c.expect(std::ranges::find(uuids, uuid) == uuids.end(),
             "device " + std::to_string(i) + " has the uuid of another device");
    uuids.push_back(uuid);
  }
}

// ---- extension "peer" ----

using Peer = abi::Calls<aa_peer_table>;

Peer peer_of(const Context& c) {
  needs_another(c);
  return c.extension<aa_peer_table>(AA_PEER_EXTENSION, AA_PEER_VERSION);
}

void needs_direct_copies(const Context& c, const Peer& peer, const Context& other) {
  for (const auto& [to, from] : {std::pair(&other, &c), std::pair(&c, &other)}) {
    int32_t possible = -1;
    c.ok(peer.can_copy(to->device, from->device, &possible), "can_copy");
    if (possible != 1) c.unsupported("can_copy says no");
  }
}

// From device memory of `from` to device memory of `to`.
aa_peer_copy copy_of(const Context& to, void* destination, const Context& from, const void* source, size_t bytes) {
  auto what = abi::sized<aa_peer_copy>();
  what.destination_device = to.device;
  what.source_device = from.device;
  what.destination = destination;
  what.source = source;
  what.size = bytes;
  return what;
}

void direct_copies_are_answered_alike(const Context& c) {
  const Peer peer = peer_of(c);
  for (int32_t i = 1; i < c.probe.device_count; ++i) {
    Opened other(c, c.instance, i);
    for (const auto& [to, from] :
         {std::pair(other.context().device, c.device), std::pair(c.device, other.context().device)}) {
      int32_t first = -1;
      c.ok(peer.can_copy(to, from, &first), "can_copy");
      c.expect(first == 0 || first == 1, "can_copy wrote " + std::to_string(first));
      for (int again = 0; again < 3; ++again) {
        int32_t answer = -1;
        c.ok(peer.can_copy(to, from, &answer), "can_copy");
        c.expect(answer == first, "can_copy gave another answer the next time");
      }
    }
    const std::string error = other.close();
    c.expect(error.empty(), error);
  }
  int32_t itself = -1;
  c.ok(peer.can_copy(c.device, c.device, &itself), "can_copy");
  c.expect(itself == 0, "can_copy of a device and itself is not 0");
}

void direct_copies_of_any_size(const Context& c) {
  const Peer peer = peer_of(c);
  Opened opened(c, c.instance, 1);
  const Context& other = opened.context();
  needs_direct_copies(c, peer, other);
  for (const auto& [to, from] : {std::pair(&other, &c), std::pair(&c, &other)}) {
    for (const Context* owner : {to, from}) {
      unsigned seed = 0;
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{3}, size_t{63}, size_t{4097}, (size_t{1} << 20) + 5}) {
        // The destination begins and ends inside its allocation, at unaligned addresses.
        Memory source(*from, bytes + 1);
        Memory destination(*to, bytes + 70);
        const Bytes data = pattern(bytes + 1, ++seed);
        Bytes expected = pattern(bytes + 70, ++seed);
        from->upload(source.data(), data.data(), data.size());
        to->upload(destination.data(), expected.data(), expected.size());
        const aa_peer_copy what = copy_of(*to, destination.data() + 3, *from, source.data() + 1, bytes);
        c.ok(peer.copy_async(owner->stream, &what), "peer copy_async of " + std::to_string(bytes) + " bytes");
        owner->synchronize();
        std::copy(data.begin() + 1, data.end(), expected.begin() + 3);
        expect_equal(to->download(destination.data(), expected.size()), expected,
                     std::to_string(bytes) + " bytes, copied directly on a stream of the " +
                         (owner == to ? "destination's" : "source's") + " device");
      }
    }
  }
}

// Copies on a held stream of either device, and on a stream that waits for an event of a held stream of the source
// device.
void direct_copies_run_in_order(const Context& c) {
  const Peer peer = peer_of(c);
  needs_gates_and_free_streams(c);
  Opened opened(c, c.instance, 1);
  const Context& other = opened.context();
  needs_direct_copies(c, peer, other);
  const Bytes old_bytes = pattern(size, 1), new_bytes = pattern(size, 2), wrong_bytes = pattern(size, 3);
  for (const char* way : {"on the source's stream", "on the destination's stream", "behind an event of the source's"}) {
    const bool on_source = way == std::string("on the source's stream");
    const bool by_event = way == std::string("behind an event of the source's");
    Memory original(c, size), source(c, size);
    Memory destination(other, size);
    c.upload(original.data(), new_bytes.data(), size);
    c.upload(source.data(), on_source || by_event ? wrong_bytes.data() : new_bytes.data(), size);
    other.upload(destination.data(), old_bytes.data(), size);
    Stream of_source(c);
    Stream of_destination(other);
    Event event(c);
    aa_stream* const held = on_source || by_event ? of_source : of_destination;
    aa_stream* const stream = on_source ? of_source : of_destination;
    Memory seen(other, size);
    Watch watch(c);
    Gate gate(on_source || by_event ? c : other, held);
    if (on_source || by_event) {
      c.ok(c.driver.copy_async(of_source, source.data(), original.data(), size, AA_COPY_DEVICE_TO_DEVICE),
           "copy_async");
    }
    if (by_event) {
      c.ok(c.driver.event_record(event, of_source), "event_record");
      c.ok_or_unsupported(c.driver.stream_wait_event(of_destination, event), "stream_wait_event");
    }
    const aa_peer_copy what = copy_of(other, destination.data(), c, source.data(), size);
    c.ok(peer.copy_async(stream, &what), "peer copy_async");
    const bool early = watch.gets_done(stream);
    other.ok(other.driver.copy_async(other.stream, seen.data(), destination.data(), size, AA_COPY_DEVICE_TO_DEVICE),
             "copy_async within the device");
    other.synchronize();
    gate.open();
    c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
    c.expect(!early, std::string("a stream is done while a direct copy ") + way + " is held");
    expect_equal(other.download(seen.data(), size), old_bytes,
                 std::string("the destination of a direct copy that is held, ") + way);
    expect_equal(other.download(destination.data(), size), new_bytes, std::string("what was copied directly ") + way);
  }
}

void bad_direct_copies_are_refused(const Context& c) {
  const Peer peer = peer_of(c);
  Opened opened(c, c.instance, 1);
  const Context& other = opened.context();
  needs_direct_copies(c, peer, other);
  Memory here(c, size), target(c, size), there(other, size);
  const Bytes data = pattern(size, 1), old_bytes = pattern(size, 2);
  c.upload(here.data(), data.data(), size);
  c.upload(target.data(), old_bytes.data(), size);
  other.upload(there.data(), old_bytes.data(), size);
  aa_peer_copy what = copy_of(other, there.data(), c, here.data(), size);
  what.flags = 1u << 31;
  c.error(peer.copy_async(c.stream, &what), {AA_UNIMPLEMENTED}, "peer copy_async with an unknown flag");
  what = copy_of(c, target.data(), c, here.data(), size);
  c.error(peer.copy_async(c.stream, &what), {AA_INVALID_ARGUMENT}, "peer copy_async within one device");
  if (c.probe.device_count > 2) {
    Opened third(c, c.instance, 2);
    what = copy_of(other, there.data(), c, here.data(), size);
    c.error(peer.copy_async(third.context().stream, &what), {AA_INVALID_ARGUMENT},
            "peer copy_async on a stream of a third device");
  }
  c.synchronize();
  expect_equal(c.download(target.data(), size), old_bytes, "the destination of a copy that was refused");
  expect_equal(other.download(there.data(), size), old_bytes, "the destination of a copy that was refused");
  what = copy_of(other, there.data(), c, here.data(), size);
  c.ok(peer.copy_async(c.stream, &what), "peer copy_async after others were refused");
  c.synchronize();
  expect_equal(other.download(there.data(), size), data, "what was copied after others were refused");
}

constexpr Case cases[] = {
    {"many_devices", "each_beside_the_first", each_beside_the_first},
    {"many_devices", "each_on_a_new_thread", each_on_a_new_thread},
    {"many_devices", "copies_between_by_way_of_the_host", copies_between_by_way_of_the_host},
    {"many_devices", "a_stream_waits_for_another_devices_event", a_stream_waits_for_another_devices_event},
    {"many_devices", "a_held_device_holds_no_other", a_held_device_holds_no_other},
    {"many_devices", "synchronizing_a_device_waits_for_its_own_streams",
     synchronizing_a_device_waits_for_its_own_streams},
    {"many_devices", "free_memory_is_each_devices_own", free_memory_is_each_devices_own},
    {"many_devices", "elapsed_time_needs_one_device", elapsed_time_needs_one_device},
    {"many_devices", "have_their_own_uuid", devices_have_their_own_uuid},
    {"many_devices", "direct_copies_are_answered_alike", direct_copies_are_answered_alike},
    {"many_devices", "direct_copies_of_any_size", direct_copies_of_any_size},
    {"many_devices", "direct_copies_run_in_order", direct_copies_run_in_order},
    {"many_devices", "bad_direct_copies_are_refused", bad_direct_copies_are_refused},
};
// A program may close a device, or everything, and begin again. This case opens the driver itself.
void opens_again_after_closing(const Context& c) {
  auto probe = abi::sized<aa_probe>();
  c.ok(c.driver.probe(&probe), "probe");
  if (probe.state != AA_PROBE_USABLE) {
    c.unavailable("the accelerator cannot be used here: " +
                  std::string(probe.reason, strnlen(probe.reason, sizeof(probe.reason))));
  }
  for (int instances = 0; instances < 2; ++instances) {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    aa_instance* instance = nullptr;
    c.ok(c.driver.initialize(&params, &instance), instances ? "initialize after shutdown" : "initialize");
    for (int devices = 0; devices < 2; ++devices) {
      Opened opened(c, instance, 0);
      {
        const Context& other = opened.context();
        Memory memory(other, size);
        const Bytes data = pattern(size, static_cast<unsigned>(2 * instances + devices));
        other.upload(memory.data(), data.data(), size);
        expect_equal(other.download(memory.data(), size), data, "what was copied after the driver was opened again");
      }
      const std::string error = opened.close();
      c.expect(error.empty(), error);
    }
    c.ok(c.driver.shutdown(instance), "shutdown");
  }
}

constexpr Case unopened[] = {{"many_devices", "each_by_itself", each_by_itself},
                             {"devices", "open_again_after_closing", opens_again_after_closing}};

}  // namespace
}  // namespace many_device_group

std::span<const Case> many_device_cases() { return many_device_group::cases; }
std::span<const Case> unopened_device_cases() { return many_device_group::unopened; }

}  // namespace anyaccel::conformance
