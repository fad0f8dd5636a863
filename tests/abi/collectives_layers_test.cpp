// The layers before the extension "collectives": what the validate layer refuses, what the trace layer writes, and what
// becomes of a table that is only begun.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "accelerators/host_collectives_driver.h"
#include "ops/op_build_support.h"
#include "runtime/layers/layers.h"

namespace anyaccel {
namespace {

class CollectivesLayers : public ::testing::Test {
 protected:
  void open(const char* layers) {
    driver_ = apply_layers(host_collectives::table(), layers);
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    ok(driver_->initialize(&params, &instance_));
    ok(driver_->device_open(instance_, 0, &device_));
    ok(driver_->stream_create(device_, 0, 0, &stream_));
    const void* found = nullptr;
    ok(driver_->query_extension(instance_, AA_COLLECTIVES_EXTENSION, AA_COLLECTIVES_VERSION, &found));
    table_ = static_cast<const abi::Calls<aa_collectives_table>*>(found);
    size_t size = 0;
    ok(table_->id_size(instance_, &size));
    id_.resize(size);
    ok(table_->id_create(instance_, id_.data()));
  }
  void close() {
    ok(driver_->stream_destroy(stream_));
    ok(driver_->device_close(device_));
    ok(driver_->shutdown(instance_));
  }
  static void ok(aa_status* status) {
    const StatusRef taken(status);
    EXPECT_TRUE(taken.ok()) << taken.text();
  }
  static void refused(aa_status* status, const std::string& part, aa_code code = AA_INVALID_ARGUMENT) {
    const StatusRef taken(status);
    EXPECT_EQ(taken.code(), code) << taken.text();
    EXPECT_NE(taken.text().find(part), std::string::npos) << taken.text();
  }
  float* memory(size_t elements) {
    void* pointer = nullptr;
    ok(driver_->mem_alloc(device_, AA_MEMORY_DEVICE, elements * sizeof(float), &pointer));
    return static_cast<float*>(pointer);
  }
  void free(float* pointer, size_t elements) {
    ok(driver_->mem_free(device_, AA_MEMORY_DEVICE, pointer, elements * sizeof(float)));
  }

  const abi::DriverCalls* driver_ = nullptr;
  aa_instance* instance_ = nullptr;
  aa_device* device_ = nullptr;
  aa_stream* stream_ = nullptr;
  const abi::Calls<aa_collectives_table>* table_ = nullptr;
  std::vector<char> id_;
};

constexpr int32_t f32 = AA_DTYPE_F32;
constexpr int32_t sum = AA_REDUCE_SUM;

TEST_F(CollectivesLayers, ValidateChecksNumbersAndBuffers) {
  open("validate");
  aa_comm* comm = nullptr;
  refused(table_->comm_create(device_, id_.data(), 1, 1, &comm), "rank is 1 in a communicator of 1");
  refused(table_->comm_create(device_, id_.data(), 0, 0, &comm), "size is 0");
  refused(table_->comm_create(device_, nullptr, 0, 1, &comm), "id is null");
  ok(table_->comm_create(device_, id_.data(), 0, 1, &comm));
  float* data = memory(100);
  float* other = memory(100);

  ok(table_->all_reduce(comm, stream_, data, data, 100, f32, sum));
  ok(table_->all_reduce(comm, stream_, data, other, 100, f32, sum));
  ok(table_->all_reduce(comm, stream_, data, data + 50, 50, f32, sum));
  ok(table_->all_reduce(comm, stream_, nullptr, nullptr, 0, f32, sum));
  refused(table_->all_reduce(comm, stream_, data, data + 1, 50, f32, sum), "overlap and are not in place");
  refused(table_->all_reduce(comm, stream_, data, other, 101, f32, sum), "send: ");
  refused(table_->all_reduce(comm, stream_, data, nullptr, 1, f32, sum), "recv: the pointer is null");
  refused(table_->all_reduce(comm, stream_, data, data, SIZE_MAX / 2, f32, sum), "count: ");
  refused(table_->all_reduce(comm, stream_, data, data, 1, 0, sum), "dtype 0");
  refused(table_->all_reduce(comm, stream_, data, data, 1, f32, 5), "op 5 is not an aa_reduce_op");
  refused(table_->reduce(comm, stream_, data, data, 1, f32, sum, 1), "root is 1 in a communicator of 1");
  refused(table_->broadcast(comm, stream_, data, data, 1, f32, -1), "root is -1");
  refused(table_->reduce_scatter(comm, stream_, data, data + 1, 2, f32, sum), "overlap");
  refused(table_->all_gather(comm, stream_, data + 1, data, 2, f32), "overlap");
  refused(table_->send(comm, stream_, data, 1, f32, 3), "peer is 3");
  refused(table_->recv(comm, stream_, other, 1000, f32, 0), "recv: ");
  refused(table_->all_reduce(nullptr, stream_, data, data, 1, f32, sum), "comm is null");
  refused(table_->group_end(instance_), "no group_begin of this thread", AA_FAILED_PRECONDITION);
  ok(table_->group_begin(instance_));
  ok(table_->group_end(instance_));

  // Objects of another device.
  aa_device* far = nullptr;
  ok(driver_->device_open(instance_, 1, &far));
  aa_stream* far_stream = nullptr;
  ok(driver_->stream_create(far, 0, 0, &far_stream));
  refused(table_->all_reduce(comm, far_stream, data, data, 1, f32, sum), "different devices");
  ok(driver_->stream_destroy(far_stream));
  ok(driver_->device_close(far));

  refused(driver_->device_close(device_), "1 communicator", AA_FAILED_PRECONDITION);
  ok(table_->comm_abort(comm));
  refused(table_->all_reduce(comm, stream_, data, data, 1, f32, sum), "aborted", AA_FAILED_PRECONDITION);
  refused(table_->comm_abort(comm), "aborted before", AA_FAILED_PRECONDITION);
  ok(table_->comm_destroy(comm));
  refused(table_->comm_destroy(comm), "destroyed before");
  refused(table_->async_error(comm), "destroyed before");
  free(data, 100);
  free(other, 100);
  close();
}

// With two members, the own place inside of the larger buffer is in place, and no other.
TEST_F(CollectivesLayers, ValidateKnowsWhereInPlaceIs) {
  open("validate");
  float* data = memory(4);
  for (int i = 0; i < 4; ++i) data[i] = static_cast<float>(i);
  std::vector<aa_comm*> comms(2);
  const auto member = [&](int rank) {
    ok(table_->comm_create(device_, id_.data(), rank, 2, &comms[static_cast<size_t>(rank)]));
  };
  std::thread second(member, 1);
  member(0);
  second.join();
  refused(table_->reduce_scatter(comms[0], stream_, data, data + 2, 2, f32, sum), "overlap");
  refused(table_->reduce_scatter(comms[1], stream_, data, data, 2, f32, sum), "overlap");
  refused(table_->all_gather(comms[0], stream_, data + 2, data, 2, f32), "overlap");
  refused(table_->all_gather(comms[1], stream_, data, data, 2, f32), "overlap");
  float* other = memory(4);
  for (int i = 0; i < 4; ++i) other[i] = 10;
  std::thread far([&] { ok(table_->reduce_scatter(comms[1], stream_, other, other + 2, 2, f32, sum)); });
  ok(table_->reduce_scatter(comms[0], stream_, data, data, 2, f32, sum));
  far.join();
  EXPECT_EQ(data[0], 10);
  EXPECT_EQ(data[1], 11);
  EXPECT_EQ(other[2], 12);
  EXPECT_EQ(other[3], 13);
  for (aa_comm* comm : comms) ok(table_->comm_destroy(comm));
  free(data, 4);
  free(other, 4);
  close();
}

TEST_F(CollectivesLayers, TraceWritesEveryCall) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "calls").string();
  setenv("ANYACCEL_TRACE_CALLS", file.c_str(), 1);
  open("trace");
  aa_comm* comm = nullptr;
  ok(table_->comm_create(device_, id_.data(), 0, 1, &comm));
  float* data = memory(4);
  ok(table_->all_reduce(comm, stream_, data, data, 4, f32, sum));
  refused(table_->all_reduce(comm, stream_, data, data, 4, AA_DTYPE_I16, sum), "hccl 1.190 has no", AA_UNIMPLEMENTED);
  ok(table_->comm_destroy(comm));
  free(data, 4);
  close();
  unsetenv("ANYACCEL_TRACE_CALLS");
  std::ifstream written(file);
  const std::string text((std::istreambuf_iterator<char>(written)), {});
  for (const char* part : {"fake.collectives.comm_create(device=", "rank=0, size=1",
                           "fake.collectives.all_reduce(comm=", "count=4, dtype=9, op=0) = OK", "= UNIMPLEMENTED: "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

// The operations may be missing; a library that cannot even make communicators is none.
TEST_F(CollectivesLayers, OperationsThatAreMissingBecomeStubs) {
  open("validate");
  abi::Calls<aa_collectives_table> raw = *table_;
  raw.struct_size =
      offsetof(aa_collectives_table, all_reduce);  // what lies behind is beyond what the driver says it has
  const abi::Calls<aa_collectives_table>* table = complete_extension(&raw, "old");
  ASSERT_NE(table, nullptr);
  ok(table->group_begin(instance_));
  ok(table->group_end(instance_));
  const StatusRef first(table->all_reduce(nullptr, nullptr, nullptr, nullptr, 0, 0, 0));
  EXPECT_EQ(first.code(), AA_UNIMPLEMENTED);
  EXPECT_NE(first.text().find("collectives.all_reduce"), std::string::npos) << first.text();
  EXPECT_EQ(StatusRef(table->recv(nullptr, nullptr, nullptr, 0, 0, 0)).code(), AA_UNIMPLEMENTED);

  raw.struct_size = offsetof(aa_collectives_table, comm_abort);
  EXPECT_EQ(complete_extension(&raw, "older"), nullptr);
  close();
}

}  // namespace
}  // namespace anyaccel
