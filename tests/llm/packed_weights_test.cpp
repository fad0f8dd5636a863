// Weights in a driver's own layout: products take them, everything else sees ordinary tensors.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/accelerator.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/ops/inference.h"
#include "conformance/suite.h"
#include "llm/decoding.h"
#include "llm/model_fixtures.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using anyaccel::testing::decode;
using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Counts the calls that the driver received.
struct Counts {
  std::atomic<int> packed{0}, living{0}, used{0}, unpacked{0};
};
Counts counts;
bool takes_packed = true;   // what enqueue says of a call with packed weights
bool loses_a_byte = false;  // the first of every weight

// The CPU's driver with a private layout: the bytes in reverse order, and each of them changed.
const abi::DriverCalls& packing_driver() {
  struct Packed {
    char* bytes;
    size_t size;
    std::vector<char> plain;  // for the products
  };
  static const aa_driver good =
      *anyaccel_cpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  static aa_ops_table good_ops;
  static aa_ops_table ops;
  static int32_t linear = -1;
  static const auto turn = [](char* to, const char* from, size_t size) {
    for (size_t i = 0; i < size; ++i) to[i] = static_cast<char>(from[size - 1 - i] ^ 0x5a);
  };
  static const auto bytes_of = [](const aa_tensor& t) {
    return static_cast<size_t>(t.shape[0] * t.shape[1]) * dtype_size(static_cast<DType>(t.dtype));
  };
  static aa_driver raw = good;
  raw.query_extension = [](void* self, aa_instance* instance, const char* name, uint32_t version, const void** out) {
    aa_status* status = good.query_extension(self, instance, name, version, out);
    if (status || std::strcmp(name, AA_OPS_EXTENSION) != 0) return status;
    good_ops = ops = *static_cast<const aa_ops_table*>(*out);
    status = good_ops.find(good_ops.self, instance, "linear", &linear);
    ops.supports = [](void* own, aa_device* device, const aa_op_call* call, int32_t* supported) {
      if (call->packed && call->op != linear) {
        *supported = 0;
        return static_cast<aa_status*>(nullptr);
      }
      return good_ops.supports(own, device, call, supported);
    };
    ops.enqueue = [](void* own, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
      if (!call->packed) return good_ops.enqueue(own, stream, call, taken);
      *taken = 0;
      if (!takes_packed) return static_cast<aa_status*>(nullptr);
      std::vector<aa_tensor> tensors(call->tensors, call->tensors + call->tensor_count);
      for (uint32_t i = 0; i < call->tensor_count; ++i) {
        auto* packed = reinterpret_cast<Packed*>(call->packed[i]);
        if (!packed) continue;
        EXPECT_EQ(tensors[i].data, nullptr);
        packed->plain.resize(packed->size);
        turn(packed->plain.data(), packed->bytes, packed->size);
        tensors[i].data = packed->plain.data();
      }
      ++counts.used;
      aa_op_call plain = *call;
      plain.tensors = tensors.data();
      plain.packed = nullptr;
      return good_ops.enqueue(own, stream, &plain, taken);
    };
    ops.packed_size = [](void*, aa_device*, const aa_pack* what, size_t* bytes) -> aa_status* {
      if (what->flags != 0) return make_status(AA_UNIMPLEMENTED, "unknown flags");
      EXPECT_EQ(what->example->op, linear);
      EXPECT_EQ(what->tensor, 2u);
      for (uint32_t i = 0; i < what->example->tensor_count; ++i) EXPECT_EQ(what->example->tensors[i].data, nullptr);
      *bytes = bytes_of(what->example->tensors[2]);
      return nullptr;
    };
    ops.pack = [](void*, aa_stream*, const aa_pack*, const aa_tensor* weight, const aa_allocation* into,
                  aa_packed** out_packed) -> aa_status* {
      turn(static_cast<char*>(into->pointer), static_cast<const char*>(weight->data), into->size);
      if (loses_a_byte) static_cast<char*>(into->pointer)[0] ^= 0x40;
      *out_packed = reinterpret_cast<aa_packed*>(new Packed{static_cast<char*>(into->pointer), into->size, {}});
      ++counts.packed;
      ++counts.living;
      return nullptr;
    };
    ops.unpack = [](void*, aa_stream*, aa_packed* packed, const aa_tensor* weight) -> aa_status* {
      const auto* p = reinterpret_cast<Packed*>(packed);
      turn(static_cast<char*>(weight->data), p->bytes, p->size);
      ++counts.unpacked;
      return nullptr;
    };
    ops.packed_destroy = [](void*, aa_packed* packed) -> aa_status* {
      delete reinterpret_cast<Packed*>(packed);
      --counts.living;
      return nullptr;
    };
    *out = &ops;
    return status;
  };
  return *complete_table(&raw, "test");
}

class PackedWeights : public ::testing::Test {
 protected:
  PackedWeights() {
    counts.packed = counts.used = counts.unpacked = 0;
    takes_packed = true;
  }
  ~PackedWeights() override { reset_accelerator(); }
  DriverAccelerator& use(std::string_view layers = "") {
    set_accelerator(std::make_unique<DriverAccelerator>(apply_layers(&packing_driver(), layers)));
    return static_cast<DriverAccelerator&>(*get_accelerator());
  }
  static Tensor numbers(const Shape& shape, Device device) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
    return Tensor::from_host(values.data(), shape, DType::F32, device);
  }
};

TEST_F(PackedWeights, ProductsTakeThemAndOthersSeeTensors) {
  DriverAccelerator& accelerator = use("validate");
  ops::Inference ops(accelerator);
  const Tensor w = numbers({24, 16}, accelerator.device());
  const Tensor x = numbers({3, 16}, accelerator.device());
  const Tensor plain = Tensor::empty({3, 24}, DType::F32, accelerator.device());
  const Tensor out = Tensor::empty({3, 24}, DType::F32, accelerator.device());
  {
    const Tensor packed = ops.pack_linear_weight(w, DType::F32);
    ASSERT_TRUE(packed.is_packed());
    EXPECT_EQ(packed.data(), nullptr);
    EXPECT_EQ(packed.shape(), w.shape());
    EXPECT_EQ(packed.nbytes(), w.nbytes());
    EXPECT_EQ(ops.pack_linear_weight(packed, DType::F32).storage(), packed.storage()) << "it is packed already";
    ops.linear(plain, x, w);
    ops.linear(out, x, packed);
    EXPECT_EQ(counts.used, 1);
    EXPECT_EQ(out.to_vector<float>(), plain.to_vector<float>());

    // Copies, conversions and views read the ordinary form.
    EXPECT_EQ(packed.to_vector<float>(), w.to_vector<float>());
    EXPECT_EQ(packed.to(DType::BF16).to_vector<float>(), w.to(DType::BF16).to_vector<float>());
    EXPECT_EQ(packed.slice(0, 4, 9).to_vector<float>(), w.slice(0, 4, 9).to_vector<float>());
    EXPECT_EQ(packed.transpose(0, 1).clone().to_vector<float>(), w.transpose(0, 1).to_vector<float>());
    const int made = counts.unpacked;
    EXPECT_EQ(made, 4);
    // Nothing writes it.
    EXPECT_THROW(packed.fill(1), InvalidArgument);
    EXPECT_THROW(packed.copy_from(w), InvalidArgument);

    // An op that the driver does not run on it, and a part of it: once unpacked, it is kept.
    ::testing::internal::CaptureStderr();
    const std::vector<int32_t> rows = {5, 0};
    const Tensor ids = Tensor::from_host(rows.data(), {2}, DType::I32, accelerator.device());
    const Tensor found = Tensor::empty({2, 16}, DType::F32, accelerator.device());
    for (int i = 0; i < 3; ++i) ops.embedding(found, packed, ids);
    EXPECT_EQ(found.to_vector<float>()[0], w.to_vector<float>()[80]);
    const Tensor part = Tensor::empty({3, 8}, DType::F32, accelerator.device());
    ops.linear(part, x, packed.slice(0, 0, 8));
    EXPECT_EQ(part.to_vector<float>()[7], plain.to_vector<float>()[7]);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_HAS(said, "does not run this call of \"embedding\" with the weights that it has packed");
    EXPECT_HAS(said, "does not run this call of \"linear\" with the weights");
    EXPECT_EQ(counts.unpacked, made + 1);
    EXPECT_EQ(counts.living, 1);
  }
  EXPECT_EQ(counts.living, 0);
}

TEST_F(PackedWeights, ADriverThatSaysYesAndDoesNot) {
  DriverAccelerator& accelerator = use();
  ops::Inference ops(accelerator);
  const Tensor packed = ops.pack_linear_weight(numbers({8, 8}, accelerator.device()), DType::F32);
  const Tensor x = numbers({1, 8}, accelerator.device());
  const Tensor out = Tensor::empty({1, 8}, DType::F32, accelerator.device());
  takes_packed = false;
  EXPECT_THROW(ops.linear(out, x, packed), NotImplementedError);
}

TEST_F(PackedWeights, TheValidateLayerKnowsThem) {
  DriverAccelerator& accelerator = use("validate");
  ops::Inference ops(accelerator);
  const auto* table = static_cast<const abi::Calls<aa_ops_table>*>(accelerator.extension(AA_OPS_EXTENSION, 1));
  ::testing::internal::CaptureStderr();
  aa_packed* const never = reinterpret_cast<aa_packed*>(&table);
  EXPECT_EQ(StatusRef(table->packed_destroy(never)).code(), AA_INVALID_ARGUMENT);
  aa_packed* handle = nullptr;
  {
    const Tensor packed = ops.pack_linear_weight(numbers({8, 8}, accelerator.device()), DType::F32);
    handle = packed.storage()->packed();
  }
  EXPECT_EQ(StatusRef(table->packed_destroy(handle)).code(), AA_INVALID_ARGUMENT);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_HAS(said, "packed was destroyed before: it is not a living packed weight");
}

// The conformance suite's cases accept this driver, and notice one whose layout loses something.
TEST_F(PackedWeights, ConformanceJudgesThem) {
  const auto outcome = [](const char* name) {
    std::string text;
    for (const auto& result :
         conformance::run_conformance(&packing_driver(), host_services(), name, {}, {.in_process = true}).cases) {
      text += result.name + ": " + conformance::outcome_name(result.outcome) + " " + result.message + "\n";
    }
    return text;
  };
  const std::string good = outcome("ops.pack");
  EXPECT_HAS(good, "a_packed_weight_gives_its_bytes_back: pass");
  EXPECT_HAS(good, "products_are_the_same: pass");
  EXPECT_GT(counts.used, 0);
  EXPECT_EQ(counts.living, 0);
  loses_a_byte = true;
  const std::string bad = outcome("ops.pack");
  loses_a_byte = false;
  EXPECT_HAS(bad, "a_packed_weight_gives_its_bytes_back: fail");
  EXPECT_HAS(bad, "products_are_the_same: fail");
}

// Packed weights are not read from the file again; the others stay in the mapped file.
TEST_F(PackedWeights, MappedBytesAreThoseThatAreUsedFromTheFile) {
  use();
  const auto model = Model::load(load_reference_model("llama_tied").directory, {});
  EXPECT_GT(counts.packed, 0);
  EXPECT_EQ(model->mapped_bytes(), model->weights().embedding.nbytes()) << "norms are converted, the rest is packed";
}

TEST_F(PackedWeights, AModelGivesTheSameText) {
  for (const char* name : {"llama_gqa", "llama_bias", "llama_tied"}) {
    const ReferenceModel reference = load_reference_model(name);
    LoadOptions options;
    options.dtype = DType::F32;
    SessionOptions session_options;
    session_options.context = static_cast<int64_t>(reference.run.prompt_ids.size() + reference.run.greedy_ids.size());
    const std::vector<std::vector<int32_t>> prompts{reference.run.prompt_ids};
    use();
    for (const char* backend : {"eager", "graph"}) {
      counts.packed = counts.used = counts.unpacked = 0;
      const BackendGuard guard(backend);
      const auto model = Model::load(reference.directory, options);
      const size_t layers = model->weights().layers.size();
      const bool tied = model->config().tie_word_embeddings;
      EXPECT_EQ(counts.packed, static_cast<int>(7 * layers + (tied ? 0 : 1))) << name;
      Session session(model, session_options);
      EXPECT_EQ(decode(session, prompts, reference.run.greedy_ids.size())[0], reference.run.greedy_ids)
          << name << " " << backend;
      EXPECT_GT(counts.used + counts.unpacked, 0);
    }
    EXPECT_EQ(counts.living, 0);
  }
}

}  // namespace
}  // namespace anyaccel::llm
