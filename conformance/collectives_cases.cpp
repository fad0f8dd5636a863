// Cases of the extension "collectives": a communicator of one member, and one of two devices in this process.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "anyaccel/abi/collectives.h"
#include "conformance/graph_objects.h"

namespace anyaccel::conformance {
namespace collectives_group {
namespace {

constexpr size_t count = 1000;
constexpr size_t largest_element = 8;
constexpr size_t size = count * largest_element;

size_t bytes_of(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_I16:
    case AA_DTYPE_F16:
    case AA_DTYPE_BF16: return 2;
    case AA_DTYPE_I32:
    case AA_DTYPE_F32: return 4;
    case AA_DTYPE_I64:
    case AA_DTYPE_F64: return 8;
    default: return 1;
  }
}

// Elements of a type that are ordinary numbers: the same when they are multiplied by one.
Bytes numbers(int32_t dtype, unsigned seed) {
  Bytes bytes = pattern(size, seed);
  const size_t width = bytes_of(dtype);
  for (size_t last = width - 1; last < bytes.size(); last += width) {
    unsigned char& top = bytes[last];  // sign and exponent of a float
    if (dtype == AA_DTYPE_BOOL) top &= 1;
    if (dtype == AA_DTYPE_F8_E4M3 || dtype == AA_DTYPE_F8_E5M2) top &= 0x3F;
    if (dtype >= AA_DTYPE_F16 && dtype <= AA_DTYPE_F64) top = static_cast<unsigned char>(0x3C | (top & 3));
  }
  return bytes;
}

abi::Calls<aa_collectives_table> collectives(const Context& c) {
  const auto table = c.extension<aa_collectives_table>(AA_COLLECTIVES_EXTENSION, AA_COLLECTIVES_VERSION);
  const char* name = nullptr;
  const char* version = nullptr;
  c.ok_or_unsupported(table.library(c.instance, &name, &version), "library");
  c.expect(name && *name && version, "library gave no name or no version");
  return table;
}

Bytes make_id(const Context& c, const abi::Calls<aa_collectives_table>& table) {
  size_t length = 0;
  c.ok(table.id_size(c.instance, &length), "id_size");
  c.expect(length > 0 && length <= AA_COLLECTIVES_MAX_ID, "id_size gave " + std::to_string(length));
  constexpr unsigned char guard = 0x5A;
  Bytes id(length + 16, guard);
  c.ok(table.id_create(c.instance, id.data()), "id_create");
  for (size_t i = length; i < id.size(); ++i) c.expect(id[i] == guard, "id_create wrote more than id_size bytes");
  id.resize(length);
  return id;
}

// Thrown where a member of several cannot join. A library may allow one of them in a process, so that this is right for one
// of two.
struct Refused {
  std::string reason;
};

class Comm {
 public:
  Comm(const Context& c, const abi::Calls<aa_collectives_table>& table, aa_device* device, const Bytes& id,
       int32_t rank, int32_t members)
      : c_(c), table_(table) {
    aa_status* const status = table.comm_create(device, id.data(), rank, members, &comm_);
    if (members > 1 && status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
      const std::string reason = c.host.status_message(&c.host, status);
      c.drop(status);
      throw Refused{reason};
    }
    c.ok(status, "comm_create");
    c.expect(comm_ != nullptr, "comm_create succeeded but gave no communicator");
  }
  ~Comm() {
    if (comm_) c_.drop(table_.comm_destroy(comm_));
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  operator aa_comm*() const noexcept { return comm_; }
  void destroy() {
    aa_comm* comm = comm_;
    comm_ = nullptr;
    c_.ok(table_.comm_destroy(comm), "comm_destroy");
  }

 private:
  const Context& c_;
  const abi::Calls<aa_collectives_table>& table_;
  aa_comm* comm_ = nullptr;
};

void ids_differ(const Context& c) {
  const abi::Calls<aa_collectives_table> table = collectives(c);
  c.expect(make_id(c, table) != make_id(c, table), "two ids are the same");
}

// In a group of one, every reduction and every transfer returns its input.
void one_member_gets_its_own(const Context& c) {
  const abi::Calls<aa_collectives_table> table = collectives(c);
  Comm comm(c, table, c.device, make_id(c, table), 0, 1);
  Memory source(c, size);
  Memory target(c, size);
  const auto check = [&](const std::string& what, int32_t dtype, unsigned seed, const auto& call) {
    for (const bool in_place : {false, true}) {
      const Bytes data = numbers(dtype, seed);
      const Bytes before = pattern(size, seed + 1000);
      const size_t used = count * bytes_of(dtype);
      c.upload(source.data(), data.data(), size);
      c.upload(target.data(), before.data(), size);
      unsigned char* to = in_place ? source.data() : target.data();
      const std::string text =
          what + " of element type " + std::to_string(dtype) + (in_place ? ", in place" : ", into another buffer");
      aa_status* status = call(source.data(), to);
      if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
        c.error(status, {AA_UNIMPLEMENTED}, text);
        expect_equal(c.download(target.data(), size), before, text + ", which is not there");
        return false;
      }
      c.ok(status, text);
      Bytes expected = in_place ? data : before;
      std::memcpy(expected.data(), data.data(), used);
      expect_equal(c.download(to, size), expected, text);
    }
    return true;
  };
  bool any = false;
  for (int32_t dtype = AA_DTYPE_BOOL; dtype <= AA_DTYPE_F8_E5M2; ++dtype) {
    for (int32_t op = AA_REDUCE_SUM; op <= AA_REDUCE_AVG; ++op) {
      const auto seed = static_cast<unsigned>(dtype * 10 + op);
      // A call with a count of 0 must return the same status as one with data.
      const bool offered = c.drop(table.all_reduce(comm, c.stream, nullptr, nullptr, 0, dtype, op));
      const bool done = check("all_reduce", dtype, seed, [&](const void* send, void* recv) {
        return table.all_reduce(comm, c.stream, send, recv, count, dtype, op);
      });
      c.expect(done == offered, "all_reduce with a count of 0 says something else than with elements");
      any = any || done;
      check("reduce", dtype, seed + 100, [&](const void* send, void* recv) {
        return table.reduce(comm, c.stream, send, recv, count, dtype, op, 0);
      });
      check("reduce_scatter", dtype, seed + 200, [&](const void* send, void* recv) {
        return table.reduce_scatter(comm, c.stream, send, recv, count, dtype, op);
      });
    }
    const auto seed = static_cast<unsigned>(dtype + 300);
    check("broadcast", dtype, seed,
          [&](const void* send, void* recv) { return table.broadcast(comm, c.stream, send, recv, count, dtype, 0); });
    check("all_gather", dtype, seed + 20,
          [&](const void* send, void* recv) { return table.all_gather(comm, c.stream, send, recv, count, dtype); });
  }
  c.expect(any, "no element type can be reduced");
  c.ok(table.async_error(comm), "async_error");
  comm.destroy();
}

void counts_of_zero_do_nothing(const Context& c) {
  const abi::Calls<aa_collectives_table> table = collectives(c);
  Comm comm(c, table, c.device, make_id(c, table), 0, 1);
  const int32_t f32 = AA_DTYPE_F32;
  c.ok(table.all_reduce(comm, c.stream, nullptr, nullptr, 0, f32, AA_REDUCE_SUM), "all_reduce");
  c.ok_or_unsupported(table.reduce(comm, c.stream, nullptr, nullptr, 0, f32, AA_REDUCE_SUM, 0), "reduce");
  c.ok_or_unsupported(table.broadcast(comm, c.stream, nullptr, nullptr, 0, f32, 0), "broadcast");
  c.ok_or_unsupported(table.all_gather(comm, c.stream, nullptr, nullptr, 0, f32), "all_gather");
  c.ok_or_unsupported(table.reduce_scatter(comm, c.stream, nullptr, nullptr, 0, f32, AA_REDUCE_SUM), "reduce_scatter");
  c.any_error(table.all_reduce(comm, c.stream, nullptr, nullptr, 0, 99, AA_REDUCE_SUM), "all_reduce of a type 99");
  c.any_error(table.all_reduce(comm, c.stream, nullptr, nullptr, 0, f32, 99), "all_reduce with an operation 99");
  c.any_error(table.broadcast(comm, c.stream, nullptr, nullptr, 0, 99, 0), "broadcast of a type 99");
  c.synchronize();
  comm.destroy();
}

void messages_to_itself_in_a_group(const Context& c) {
  const abi::Calls<aa_collectives_table> table = collectives(c);
  Comm comm(c, table, c.device, make_id(c, table), 0, 1);
  Memory source(c, size);
  Memory target(c, size);
  const Bytes data = pattern(size, 5);
  c.upload(source.data(), data.data(), size);
  c.ok_or_unsupported(table.group_begin(c.instance), "group_begin");
  c.ok(table.group_begin(c.instance), "group_begin inside a group");
  const bool sent = c.drop(table.send(comm, c.stream, source.data(), size, AA_DTYPE_U8, 0));
  const bool received = c.drop(table.recv(comm, c.stream, target.data(), size, AA_DTYPE_U8, 0));
  c.ok(table.group_end(c.instance), "group_end inside a group");
  c.ok(table.group_end(c.instance), "group_end");
  c.expect(sent && received, "send or recv inside a group failed");
  expect_equal(c.download(target.data(), size), data, "a message to itself");
  comm.destroy();
}

void captured_in_a_graph(const Context& c) {
  const abi::Calls<aa_collectives_table> table = collectives(c);
  const abi::Calls<aa_graph_table> graph_table = graphs(c);
  Comm comm(c, table, c.device, make_id(c, table), 0, 1);
  Memory source(c, size);
  Memory target(c, size);
  const Bytes before = pattern(size, 6);
  c.upload(target.data(), before.data(), size);
  Stream recorder(c);
  Capture capture(c, graph_table, recorder);
  c.ok(table.all_reduce(comm, capture.stream(), source.data(), target.data(), size / 4, AA_DTYPE_F32, AA_REDUCE_MAX),
       "all_reduce while capturing");
  const Graph graph(c, graph_table, capture.end());
  expect_equal(c.download(target.data(), size), before, "memory after recording");
  for (unsigned round = 0; round < 2; ++round) {
    const Bytes data = pattern(size, 20 + round);
    c.upload(source.data(), data.data(), size);
    graph.launch(c.stream);
    expect_equal(c.download(target.data(), size), data, "launch " + std::to_string(round + 1));
  }
}

void nothing_follows_an_abort(const Context& c) {
  const abi::Calls<aa_collectives_table> table = collectives(c);
  Comm comm(c, table, c.device, make_id(c, table), 0, 1);
  Memory memory(c, size);
  c.ok_or_unsupported(table.comm_abort(comm), "comm_abort");
  c.error(table.all_reduce(comm, c.stream, memory.data(), memory.data(), count, AA_DTYPE_F32, AA_REDUCE_SUM),
          {AA_CANCELLED, AA_FAILED_PRECONDITION}, "all_reduce after comm_abort");
  c.any_error(table.async_error(comm), "async_error after comm_abort");
  comm.destroy();
  c.synchronize();
}

// ---- two devices, each on a thread of its own ----

struct OtherDevice {
  explicit OtherDevice(const Context& c) : c_(c) {
    int32_t devices = 0;
    c.ok(c.driver.device_count(c.instance, &devices), "device_count");
    if (devices < 2) c.unavailable("there is one device only");
    props.struct_size = sizeof(props);
    c.ok(c.driver.device_props(c.instance, 1, &props), "device_props");
    bool has_uuid = false;
    for (const auto byte : props.uuid) has_uuid = has_uuid || byte != 0;
    if (has_uuid && std::memcmp(props.uuid, c.props.uuid, sizeof(props.uuid)) == 0) {
      c.unavailable("devices 0 and 1 are one piece of hardware");
    }
    c.ok(c.driver.device_open(c.instance, 1, &device), "device_open of device 1");
  }
  ~OtherDevice() { c_.drop(c_.driver.device_close(device)); }
  OtherDevice(const OtherDevice&) = delete;
  OtherDevice& operator=(const OtherDevice&) = delete;

  aa_device_props props{};
  aa_device* device = nullptr;

 private:
  const Context& c_;
};

template <class Element>
Bytes bytes_from(const std::vector<Element>& values) {
  Bytes bytes(values.size() * sizeof(Element));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void two_members_program(const Context& c, const abi::Calls<aa_collectives_table>& table, const Bytes& id,
                         int32_t rank) {
  Stream stream(c);
  Comm comm(c, table, c.device, id, rank, 2);
  const auto values = [](int32_t member, size_t n) {
    std::vector<int32_t> made(n);
    for (size_t i = 0; i < n; ++i) made[i] = static_cast<int32_t>(i % 1000) * (member == 0 ? 3 : -5);
    return made;
  };
  const auto sum = [&](size_t n) {
    std::vector<int32_t> made = values(0, n);
    const std::vector<int32_t> other = values(1, n);
    for (size_t i = 0; i < n; ++i) made[i] += other[i];
    return made;
  };
  constexpr size_t n = 5000;
  Memory source(c, 2 * n * 4);
  Memory target(c, 2 * n * 4);
  const Bytes own = bytes_from(values(rank, 2 * n));
  const auto fresh = [&] { c.upload(source.data(), own.data(), own.size()); };
  const auto part = [](const Bytes& bytes, size_t first, size_t elements) {
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(first * 4);
    return Bytes(begin, begin + static_cast<ptrdiff_t>(elements * 4));
  };
  const auto expect = [&](const void* found, const Bytes& expected, const char* what) {
    c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
    expect_equal(c.download(found, expected.size()), expected, what);
  };
  const auto mine = static_cast<size_t>(rank);
  const int32_t i32 = AA_DTYPE_I32;

  fresh();
  c.ok(table.all_reduce(comm, stream, source.data(), target.data(), n, i32, AA_REDUCE_SUM), "all_reduce");
  expect(target.data(), bytes_from(sum(n)), "all_reduce of two devices");
  c.ok(table.all_reduce(comm, stream, source.data(), source.data(), n, i32, AA_REDUCE_MIN), "all_reduce, in place");
  expect(source.data(), bytes_from(values(1, n)), "all_reduce with the smallest, in place");
  fresh();
  c.ok(table.all_reduce(comm, stream, source.data(), source.data(), n, i32, AA_REDUCE_MAX), "all_reduce, in place");
  expect(source.data(), bytes_from(values(0, n)), "all_reduce with the largest, in place");
  fresh();
  c.ok_or_unsupported(
      table.reduce(comm, stream, source.data(), rank == 1 ? target.data() : nullptr, n, i32, AA_REDUCE_SUM, 1),
      "reduce");
  if (rank == 1) expect(target.data(), bytes_from(sum(n)), "reduce to device 1");
  c.ok_or_unsupported(table.broadcast(comm, stream, rank == 1 ? source.data() : nullptr, target.data(), n, i32, 1),
                      "broadcast");
  expect(target.data(), bytes_from(values(1, n)), "broadcast from device 1");
  c.ok_or_unsupported(table.all_gather(comm, stream, source.data(), target.data(), n, i32), "all_gather");
  Bytes both = bytes_from(values(0, n));
  const Bytes second = bytes_from(values(1, n));
  both.insert(both.end(), second.begin(), second.end());
  expect(target.data(), both, "all_gather of two devices");
  c.ok_or_unsupported(
      table.reduce_scatter(comm, stream, source.data(), source.data() + mine * n * 4, n, i32, AA_REDUCE_SUM),
      "reduce_scatter");
  expect(source.data() + mine * n * 4, part(bytes_from(sum(2 * n)), mine * n, n), "reduce_scatter, in place");

  fresh();
  c.ok_or_unsupported(table.group_begin(c.instance), "group_begin");
  const bool sent = c.drop(table.send(comm, stream, source.data(), n, i32, 1 - rank));
  const bool received = c.drop(table.recv(comm, stream, target.data(), n, i32, 1 - rank));
  c.ok(table.group_end(c.instance), "group_end");
  c.expect(sent && received, "send or recv inside a group failed");
  expect(target.data(), bytes_from(values(1 - rank, n)), "an exchange of two devices");
  if (rank == 0) {
    c.ok(table.send(comm, stream, source.data(), n, i32, 1), "send");
  } else {
    c.ok(table.recv(comm, stream, target.data(), n, i32, 0), "recv");
    expect(target.data(), bytes_from(values(0, n)), "a message from device 0");
  }
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  c.ok(table.async_error(comm), "async_error");
  comm.destroy();
}

// What the members of two_devices_in_one_process() share, which a member that waits for ever keeps alive.
struct TwoMembers {
  explicit TwoMembers(const Context& c)
      : contexts{c, c}, table(collectives(c)), other(contexts[0]), id(make_id(c, table)) {
    contexts[1].device = other.device;
    contexts[1].props = other.props;
  }

  void run(int32_t rank) {
    std::exception_ptr failure;
    bool was_refused = false;
    try {
      Context& c = contexts[static_cast<size_t>(rank)];
      const Stream stream(c);
      c.stream = stream;
      two_members_program(c, table, id, rank);
    } catch (const Refused& refused) {
      failure = std::make_exception_ptr(Unsupported{"comm_create of a second member: " + refused.reason});
      was_refused = true;
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (was_refused) ++refused;
    if (!first_failure) first_failure = failure;
    ++ended;
    changed.notify_all();
  }

  std::array<Context, 2> contexts;
  const abi::Calls<aa_collectives_table> table;
  const OtherDevice other;
  const Bytes id;
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr first_failure;  // mutex
  int ended = 0;                     // mutex
  int refused = 0;                   // mutex
};

void two_devices_in_one_process(const Context& c) {
  const auto members = std::make_shared<TwoMembers>(c);
  std::array<std::thread, 2> threads;
  for (int32_t rank = 0; rank < 2; ++rank) {
    threads[static_cast<size_t>(rank)] = std::thread([members, rank] { members->run(rank); });
  }
  std::unique_lock lock(members->mutex);
  members->changed.wait(lock, [&] { return members->first_failure || members->ended == 2; });
  // A member that was refused leaves the other one waiting for it in the library, from which no call brings it back.
  // It is left there with the device that it holds open. In a child it dies with the process; with --in-process it must not
  // wake once the suite has ended, as it would call the driver through a table that is gone (Context::driver).
  const bool all_ended = members->changed.wait_for(lock, std::chrono::seconds(5), [&] { return members->ended == 2; });
  const std::exception_ptr failure = members->first_failure;
  const bool both_refused = members->refused == 2;
  lock.unlock();
  for (std::thread& thread : threads) {
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  c.expect(
      !both_refused,
      "comm_create returned AA_UNIMPLEMENTED for both members; a library that allows one member in a process lets the "
      "first one join");
  if (failure) std::rethrow_exception(failure);
}

constexpr Case cases[] = {
    {"collectives", "ids_differ", ids_differ},
    {"collectives", "one_member_gets_its_own", one_member_gets_its_own},
    {"collectives", "counts_of_zero_do_nothing", counts_of_zero_do_nothing},
    {"collectives", "messages_to_itself_in_a_group", messages_to_itself_in_a_group},
    {"collectives", "captured_in_a_graph", captured_in_a_graph},
    {"collectives", "nothing_follows_an_abort", nothing_follows_an_abort},
    {"collectives", "two_devices_in_one_process", two_devices_in_one_process},
};

}  // namespace
}  // namespace collectives_group

std::span<const Case> collectives_cases() { return collectives_group::cases; }

}  // namespace anyaccel::conformance
