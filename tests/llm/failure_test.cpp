// A program whose memory or device fails while a model is loaded or generates sees one clear error that says what
// would fit, and the text there was.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/model_fixtures.h"

namespace anyaccel::llm {
namespace {

// The CPU, seen as memory of its own, that fails where a test wants it to.
class FailingAccelerator final : public DriverAccelerator {
 public:
  explicit FailingAccelerator(const abi::DriverCalls& driver) : DriverAccelerator(&driver) {}

  bool is_host_coherent() const override { return false; }
  // Replays cannot be made to fail, so every step is run.
  bool supports_graphs() const override { return false; }
  std::shared_ptr<Storage> allocate(size_t bytes, int index) override {
    if (bytes > largest) {
      throw OutOfMemoryError("the device is out of memory: " + std::to_string(bytes) + " bytes were asked for");
    }
    return DriverAccelerator::allocate(bytes, index);
  }
  int64_t available_memory(int) override { return available; }
  void enqueue_op(OpHandle op, const aa_op_call& call, int index) override {
    ++ops;
    if (ops_left >= 0 && ops_left-- == 0) throw Error("the device is lost", AA_DEVICE_LOST);
    DriverAccelerator::enqueue_op(op, call, index);
  }

  size_t largest = SIZE_MAX;  // bytes of one allocation
  int64_t available = 1 << 30;
  int64_t ops = 0;        // that were looked up
  int64_t ops_left = -1;  // until the device is lost; -1: never
};

class Failures : public ::testing::Test {
 protected:
  Failures() : model_(anyaccel::testing::load_reference_model("llama_gqa")) {
    cpu_ = make_accelerator("cpu");
    auto failing = std::make_unique<FailingAccelerator>(dynamic_cast<DriverAccelerator&>(*cpu_).driver());
    accelerator_ = failing.get();
    set_accelerator(std::move(failing));
  }
  ~Failures() override { reset_accelerator(); }

  static TextGenerator load(const std::string& directory, DType dtype = DType::F32) {
    LoadOptions options;
    options.dtype = dtype;
    return TextGenerator::load(directory, options);
  }
  template <class Body>
  static std::string out_of_memory(Body&& body) {
    try {
      body();
    } catch (const OutOfMemoryError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no OutOfMemoryError";
    return {};
  }

  anyaccel::testing::ReferenceModel model_;
  std::unique_ptr<Accelerator> cpu_;
  FailingAccelerator* accelerator_ = nullptr;
};

TEST_F(Failures, AModelThatIsTooLargeSaysWhatWouldFit) {
  accelerator_->largest = 4096;
  accelerator_->available = 200 << 10;
  const std::string message = out_of_memory([&] { load(model_.directory); });
  EXPECT_NE(message.find(model_.directory), std::string::npos) << message;
  EXPECT_NE(message.find("as float32"), std::string::npos) << message;
  EXPECT_NE(message.find("has room for 2"), std::string::npos) << message;
  EXPECT_TRUE(message.find("--dtype bf16") != std::string::npos || message.find("would fit") != std::string::npos)
      << message;
  // Nothing is left behind.
  EXPECT_EQ(accelerator_->memory_allocated(), 0);
}

TEST_F(Failures, AModelForWhichThereIsRoomIsNotSaidToBeTooLarge) {
  accelerator_->largest = 4096;
  accelerator_->available = 1 << 30;
  const std::string message = out_of_memory([&] { load(model_.directory); });
  EXPECT_NE(message.find("has room for 1.1 GB, but it could not be loaded"), std::string::npos) << message;
  EXPECT_EQ(message.find("bf16"), std::string::npos) << message;
}

TEST_F(Failures, ACacheThatIsTooLargeSaysWhatContextWouldFit) {
  TextGenerator generator = load(model_.directory);
  const int64_t before = accelerator_->memory_allocated();
  accelerator_->largest = 1 << 20;
  accelerator_->available = 1 << 20;
  GenerateOptions options;
  options.context = 1 << 20;
  options.max_new_tokens = 1 << 20;
  const std::vector<std::vector<int32_t>> prompts = {model_.run.prompt_ids};
  const std::string message = out_of_memory([&] { generator.generate_ids(prompts, options); });
  const ModelConfig& config = generator.model().config();
  const double per_token =
      8.0 * static_cast<double>(config.num_hidden_layers * config.num_key_value_heads * config.head_dim);
  const auto fits = static_cast<int64_t>(0.9 * (1 << 20) / per_token);
  EXPECT_NE(message.find("about " + std::to_string(fits) + " tokens"), std::string::npos) << message;
  EXPECT_EQ(generator.interrupted(), nullptr);
  EXPECT_EQ(accelerator_->memory_allocated(), before);
  // A context that fits works afterwards.
  options.context = static_cast<int64_t>(prompts[0].size()) + 4;
  options.max_new_tokens = 4;
  EXPECT_EQ(generator.generate_ids(prompts, options).completions[0].token_ids.size(), 4u);
}

TEST_F(Failures, ADeviceLostInTheMiddleKeepsTheText) {
  TextGenerator generator = load(model_.directory);
  GenerateOptions options;
  options.max_new_tokens = 12;
  options.ignore_eos = true;
  const std::vector<std::string> prompts = {"Once upon a time"};
  accelerator_->ops = 0;
  const std::string whole = generator.generate(prompts, options).completions[0].text;

  std::string streamed;
  accelerator_->ops_left = accelerator_->ops / 2;
  try {
    generator.generate(prompts, options, [&](size_t, std::string_view piece) {
      streamed += piece;
      return true;
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), AA_DEVICE_LOST) << error.what();
  }
  ASSERT_NE(generator.interrupted(), nullptr);
  const Completion& part = generator.interrupted()->completions[0];
  EXPECT_EQ(part.finish_reason, FinishReason::Error);
  EXPECT_LT(part.token_ids.size(), 12u);
  EXPECT_GE(part.token_ids.size(), 1u);
  EXPECT_EQ(part.text, streamed);
  EXPECT_EQ(whole.substr(0, part.text.size()), part.text);

  // The next call starts anew.
  accelerator_->ops_left = -1;
  EXPECT_EQ(generator.generate(prompts, options).completions[0].text, whole);
  EXPECT_EQ(generator.interrupted(), nullptr);
}

}  // namespace
}  // namespace anyaccel::llm
