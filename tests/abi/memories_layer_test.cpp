// The memories layer: drivers whose runtimes take buffers get the buffer of every address.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "abi/fake_driver.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/peer.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "runtime/layers/layers.h"
#include "runtime/layers/memories.h"

namespace anyaccel {
namespace {

// The arguments that the driver received.
std::vector<aa_memory*> seen;
aa_memory* latest = nullptr;

// The fake driver, with an object for each allocation, and eyes on the members under test.
const aa_driver& watched() {
  static const aa_driver original = *fake::raw_table();
  static aa_driver raw = [] {
    aa_driver table = original;
    table.flags = AA_DRIVER_WANTS_MEMORY;
    table.mem_alloc = [](void* self, aa_device* device, const aa_alloc* what, aa_allocation* out) {
      aa_status* status = original.mem_alloc(self, device, what, out);
      if (!status) out->memory = latest = reinterpret_cast<aa_memory*>(static_cast<char*>(out->pointer) + 1);
      return status;
    };
    table.mem_free = [](void* self, aa_device* device, const aa_allocation* what) {
      seen.push_back(what->memory);
      return original.mem_free(self, device, what);
    };
    table.copy_async = [](void* self, aa_stream* stream, const aa_copy* what) {
      seen.push_back(what->destination_memory);
      seen.push_back(what->source_memory);
      return original.copy_async(self, stream, what);
    };
    table.fill_async = [](void* self, aa_stream* stream, const aa_fill* what) {
      seen.push_back(what->memory);
      return original.fill_async(self, stream, what);
    };
    table.kernel_launch = [](void*, aa_stream*, aa_kernel*, const aa_launch* launch) -> aa_status* {
      seen.assign(launch->memories, launch->memories + launch->argument_count);
      return nullptr;
    };
    return table;
  }();
  return raw;
}

struct Opened {
  const abi::DriverCalls& driver;
  aa_instance* instance = nullptr;
  aa_device* devices[2] = {};
  aa_stream* streams[2] = {};
  explicit Opened(const aa_driver& table = watched()) : driver(*apply_needed_layers(complete_table(&table, "test"))) {
    auto params = abi::sized<aa_initialize_params>();
    check(driver.initialize(&params, &instance), "initialize", "");
    for (int i = 0; i < 2; ++i) {
      auto open = abi::sized<aa_device_open_params>();
      open.index = i;
      check(driver.device_open(instance, &open, &devices[i]), "device_open", "");
      auto stream = abi::sized<aa_stream_params>();
      check(driver.stream_create(devices[i], &stream, &streams[i]), "stream_create", "");
    }
  }
  ~Opened() {
    for (int i = 0; i < 2; ++i) {
      release_status(driver.stream_destroy(streams[i]));
      release_status(driver.device_close(devices[i]));
    }
    release_status(driver.shutdown(instance));
  }
};

TEST(MemoriesLayer, FindsTheAllocationOfEveryAddress) {
  Opened o;
  void* a = nullptr;
  void* b = nullptr;
  check(o.driver.mem_alloc(o.devices[0], AA_MEMORY_DEVICE, 256, &a), "a", "");
  aa_memory* const of_a = latest;
  check(o.driver.mem_alloc(o.devices[0], AA_MEMORY_PINNED, 64, &b), "b", "");
  aa_memory* const of_b = latest;
  char ordinary[64] = {};
  seen.clear();
  check(o.driver.copy_async(o.streams[0], static_cast<char*>(a) + 255, b, 1, AA_COPY_HOST_TO_DEVICE), "copy", "");
  check(o.driver.copy_async(o.streams[0], a, ordinary, 64, AA_COPY_HOST_TO_DEVICE), "copy", "");
  const char zero = 0;
  check(o.driver.fill_async(o.streams[0], static_cast<char*>(a) + 10, &zero, 1, 5), "fill", "");
  EXPECT_EQ(seen, (std::vector<aa_memory*>{of_a, of_b, of_a, nullptr, of_a}));
  // The other device has no such memory.
  seen.clear();
  check(o.driver.fill_async(o.streams[1], a, &zero, 1, 5), "fill", "");
  EXPECT_EQ(seen, std::vector<aa_memory*>{nullptr});

  // Kernels: pointers only, and not what lies behind the end.
  void* const end = static_cast<char*>(a) + 256;
  void* const inside = static_cast<char*>(a) + 100;
  const void* const values[] = {&inside, &inside, &end};
  const uint32_t sizes[] = {8, 8, 8};
  const uint8_t kinds[] = {AA_ARGUMENT_POINTER, AA_ARGUMENT_VALUE, AA_ARGUMENT_POINTER};
  auto launch = abi::sized<aa_launch>();
  launch.argument_count = 3;
  launch.arguments = values;
  launch.argument_sizes = sizes;
  launch.argument_kinds = kinds;
  check(o.driver.kernel_launch(o.streams[0], nullptr, &launch), "launch", "");
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], of_a);
  EXPECT_EQ(seen[1], nullptr);
  EXPECT_TRUE(seen[2] == nullptr || seen[2] == of_b) << "another allocation may begin there";

  seen.clear();
  check(o.driver.mem_free(o.devices[0], AA_MEMORY_DEVICE, a, 256), "free", "");
  EXPECT_EQ(seen, std::vector<aa_memory*>{of_a});
  check(o.driver.mem_free(o.devices[0], AA_MEMORY_PINNED, b, 64), "free", "");
  seen.clear();
  check(o.driver.mem_alloc(o.devices[0], AA_MEMORY_DEVICE, 256, &a), "a", "");
  check(o.driver.fill_async(o.streams[0], a, &zero, 1, 5), "fill", "");
  EXPECT_EQ(seen, std::vector<aa_memory*>{latest}) << "the same address, a new allocation";
  check(o.driver.mem_free(o.devices[0], AA_MEMORY_DEVICE, a, 256), "free", "");
}

TEST(MemoriesLayer, DirectCopiesCarryTheAllocationsOfBothDevices) {
  static aa_driver raw = watched();
  raw.query_extension = [](void*, aa_instance*, const char*, uint32_t, const void** out) -> aa_status* {
    static aa_peer_table peer = [] {
      aa_peer_table table{};
      table.struct_size = sizeof(table);
      table.version = AA_PEER_VERSION;
      table.can_copy = [](void*, aa_device*, aa_device*, int32_t* possible) -> aa_status* {
        *possible = 1;
        return nullptr;
      };
      table.copy_async = [](void*, aa_stream*, const aa_peer_copy* what) -> aa_status* {
        seen = {what->destination_memory, what->source_memory};
        return nullptr;
      };
      return table;
    }();
    *out = &peer;
    return nullptr;
  };
  Opened o(raw);
  const void* table = nullptr;
  check(o.driver.query_extension(o.instance, AA_PEER_EXTENSION, AA_PEER_VERSION, &table), "query_extension", "");
  void* a = nullptr;
  void* b = nullptr;
  check(o.driver.mem_alloc(o.devices[0], AA_MEMORY_DEVICE, 256, &a), "a", "");
  aa_memory* const of_a = latest;
  check(o.driver.mem_alloc(o.devices[1], AA_MEMORY_DEVICE, 64, &b), "b", "");
  aa_memory* const of_b = latest;
  auto what = abi::sized<aa_peer_copy>();
  what.destination_device = o.devices[0];
  what.source_device = o.devices[1];
  what.destination = static_cast<char*>(a) + 200;
  what.source = b;
  what.size = 8;
  check(static_cast<const abi::Calls<aa_peer_table>*>(table)->copy_async(o.streams[0], &what), "copy_async", "");
  EXPECT_EQ(seen, (std::vector<aa_memory*>{of_a, of_b}));
  check(o.driver.mem_free(o.devices[0], AA_MEMORY_DEVICE, a, 256), "free", "");
  check(o.driver.mem_free(o.devices[1], AA_MEMORY_DEVICE, b, 64), "free", "");
}

// Through the whole runtime: blocks of the caching allocator, views and ops.
TEST(MemoriesLayer, TensorsAndOpsCarryTheirAllocation) {
  static std::vector<std::pair<const void*, aa_memory*>> operands;
  static const aa_ops_table* original = nullptr;
  operands.clear();
  aa_driver raw = watched();
  static const auto query = raw.query_extension;
  raw.query_extension = [](void* self, aa_instance* instance, const char* name, uint32_t version, const void** out) {
    aa_status* status = query(self, instance, name, version, out);
    if (status || std::strcmp(name, AA_OPS_EXTENSION) != 0) return status;
    original = static_cast<const aa_ops_table*>(*out);
    static aa_ops_table mine;
    mine = *original;
    mine.enqueue = [](void* own, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
      for (uint32_t i = 0; i < call->tensor_count; ++i) {
        operands.emplace_back(call->tensors[i].data, call->memories[i]);
      }
      return original->enqueue(own, stream, call, taken);
    };
    *out = &mine;
    return status;
  };
  DriverAccelerator accelerator(apply_needed_layers(complete_table(&raw, "test")));
  const Tensor x = Tensor::empty({64}, DType::F32, accelerator.device());
  const Tensor view = x.slice(0, 16, 32);
  aa_tensor tensors[3] = {};
  for (int i = 0; i < 2; ++i) {
    tensors[i].data = i == 0 ? x.data() : view.data();
    tensors[i].dtype = AA_DTYPE_F32;
    tensors[i].ndim = 1;
    tensors[i].shape[0] = 16;
    tensors[i].strides[0] = 1;
  }
  auto call = abi::sized<aa_op_call>();
  call.op = accelerator.find_op("add");
  call.tensors = tensors;
  call.tensor_count = 3;
  accelerator.enqueue_op(accelerator.resolve_op(call, 0), call, 0);
  ASSERT_EQ(operands.size(), 3u);
  EXPECT_EQ(operands[0].second, latest);
  EXPECT_EQ(operands[1].second, latest);
  EXPECT_EQ(operands[2].second, nullptr) << "an optional tensor that is not there";
}

TEST(MemoriesLayer, IsThereOnlyForDriversThatAskForIt) {
  aa_driver raw = *fake::raw_table();
  const abi::DriverCalls* plain = complete_table(&raw, "test");
  EXPECT_EQ(apply_needed_layers(plain), plain);
  raw.flags = 1u << 9;
  EXPECT_THROW(complete_table(&raw, "test"), UnavailableError);
}

}  // namespace
}  // namespace anyaccel
