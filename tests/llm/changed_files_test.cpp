// Weight files that are truncated or overwritten while a model runs from them, mapped and read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/text_generation.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/text/json.h"
#include "llm/model/lora_adapter.h"
#include "llm/model_fixtures.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

namespace fs = std::filesystem;
using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

// A copy of a stored model, whose weights tests may damage.
class Copy {
 public:
  Copy() : reference_(anyaccel::testing::load_reference_model("llama_gqa")) {
    fs::copy(reference_.directory, directory_.path(), fs::copy_options::recursive);
    // The clock of file times has steps of some milliseconds: the copy must not have been written in the same one.
    const auto past = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(weights(), past);
  }
  fs::path weights() const { return directory_.path() / "model.safetensors"; }
  TextGenerator load(bool map, DType dtype = DType::None) const {
    LoadOptions options;
    options.map_files = map;
    options.dtype = dtype;
    return TextGenerator::load(directory_.path().string(), options);
  }
  const anyaccel::testing::ReferenceModel& reference() const { return reference_; }
  void truncate() const { fs::resize_file(weights(), 4096); }
  // The same size, other weights.
  void overwrite() const {
    std::fstream file(weights(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(fs::file_size(weights()) / 2));
    file << "other weights than those that were here before";
  }

 private:
  anyaccel::testing::ReferenceModel reference_;
  TestDirectory directory_;
};

// Greedy tokens of 24; `after` is called when the third of them is there.
std::vector<int32_t> generate(TextGenerator& generator, const Copy& copy, const std::function<void()>& after) {
  GenerateOptions options;
  options.max_new_tokens = 24;
  options.ignore_eos = true;
  size_t pieces = 0;
  const std::vector<std::string> prompts = {"Once upon a time"};
  const auto callback = [&](size_t, std::string_view) {
    if (++pieces == 3) after();
    return true;
  };
  EXPECT_EQ(copy.reference().name, "llama_gqa");
  return generator.generate(prompts, options, callback).completions[0].token_ids;
}

bool used_in_place(const TextGenerator& generator) { return generator.model().mapped_bytes() > 0; }

class ChangedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!get_accelerator()->is_host_coherent() || !get_accelerator()->is_bf16_supported()) {
      GTEST_SKIP() << "weights are not used from the file here";
    }
  }
  Copy copy_;
};

TEST_F(ChangedFiles, OverwrittenWeightsEndGeneration) {
  TextGenerator generator = copy_.load(true);
  ASSERT_TRUE(used_in_place(generator));
  const std::string message = checkpoint_error([&] { generate(generator, copy_, [&] { copy_.overwrite(); }); });
  expect_contains(message, copy_.weights().string() + ": was written to while it was in use");
  expect_contains(message, "time of modification");
  ASSERT_NE(generator.interrupted(), nullptr);
  EXPECT_LT(generator.interrupted()->completions[0].token_ids.size(), 24u);
  // And every later call fails too.
  checkpoint_error([&] { generate(generator, copy_, [] {}); });
}

TEST_F(ChangedFiles, OverwrittenBetweenTwoCallsIsNoticed) {
  TextGenerator generator = copy_.load(true);
  generate(generator, copy_, [] {});
  copy_.overwrite();
  expect_contains(checkpoint_error([&] { generate(generator, copy_, [] {}); }), "was written to");
}

TEST_F(ChangedFiles, OverwrittenWithItsOldTimeIsNoticed) {
  TextGenerator generator = copy_.load(true);
  const auto time = fs::last_write_time(copy_.weights());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the time of change cannot be set to the past
  copy_.overwrite();
  fs::last_write_time(copy_.weights(), time);
  expect_contains(checkpoint_error([&] { generate(generator, copy_, [] {}); }), "time of change");
}

TEST_F(ChangedFiles, GrownFilesAreNoticed) {
  TextGenerator generator = copy_.load(true);
  std::ofstream(copy_.weights(), std::ios::app) << "more";
  expect_contains(checkpoint_error([&] { generate(generator, copy_, [] {}); }), "bytes when it was opened and has");
}

TEST_F(ChangedFiles, ReplacedAndRenamedFilesGoOn) {
  TextGenerator generator = copy_.load(true);
  const std::vector<int32_t> expected = generate(generator, copy_, [] {});
  const auto replace = [&] {
    const fs::path other = copy_.weights().string() + ".new";
    std::ofstream(other) << "not even weights";
    fs::rename(other, copy_.weights());
  };
  EXPECT_EQ(generate(generator, copy_, replace), expected);
  EXPECT_EQ(generate(generator, copy_, [] {}), expected);
}

TEST_F(ChangedFiles, NewRightsAreNoChange) {
  TextGenerator generator = copy_.load(true);
  fs::permissions(copy_.weights(), fs::perms::owner_read);
  EXPECT_EQ(generate(generator, copy_, [] {}).size(), 24u);
}

TEST_F(ChangedFiles, WithoutAMappingTheyMayChange) {
  for (const DType dtype : {DType::None, DType::F32}) {
    Copy copy;
    TextGenerator mapped = copy.load(true, dtype);
    const std::vector<int32_t> expected = generate(mapped, copy, [] {});
    TextGenerator generator = copy.load(false, dtype);
    EXPECT_EQ(generator.model().mapped_bytes(), 0u);
    EXPECT_EQ(generator.model().weight_bytes(), mapped.model().weight_bytes());
    EXPECT_EQ(generate(generator, copy, [&] { copy.overwrite(); }), expected);
    copy.truncate();
    EXPECT_EQ(generate(generator, copy, [] {}), expected);
    fs::remove(copy.weights());
    EXPECT_EQ(generate(generator, copy, [] {}), expected);
  }
}

TEST(ChangedFilesWhileLoading, AreAnError) {
  for (const bool map : {true, false}) {
    SCOPED_TRACE(map);
    Copy copy;
    bool done = false;
    LoadOptions options;
    options.map_files = map;
    options.progress = [&](const LoadProgress&) {
      if (!done) copy.overwrite();
      done = true;
    };
    const std::string message = checkpoint_error([&] { Model::load(copy.weights().parent_path().string(), options); });
    expect_contains(message, "was written to while it was in use");
  }
}

TEST(ChangedFilesWhileLoading, ShortenedOnesAreAnErrorWithoutAMapping) {
  Copy copy;
  bool done = false;
  LoadOptions options;
  options.map_files = false;
  options.progress = [&](const LoadProgress&) {
    if (!done) copy.truncate();
    done = true;
  };
  const std::string message = checkpoint_error([&] { Model::load(copy.weights().parent_path().string(), options); });
  expect_contains(message, copy.weights().string() + ": has no byte ");
  expect_contains(message, "bytes when it was opened and has 4096 now");
}

TEST(FileAccess, ReadGivesTheBytesOfTheMapping) {
  const std::string path = anyaccel::testing::models_directory() + "/llama_gqa/model.safetensors";
  const auto mapped = SafetensorsFile::open(path);
  const auto plain = SafetensorsFile::open(path, FileAccess::Read);
  for (const TensorInfo& tensor : plain->tensors()) {
    EXPECT_EQ(plain->data(tensor), nullptr);
    std::vector<std::byte> bytes(tensor.bytes);
    plain->read(tensor.offset, bytes);
    EXPECT_EQ(std::memcmp(bytes.data(), mapped->data(tensor), tensor.bytes), 0) << tensor.name;
    plain->will_need(plain->data(tensor), tensor.bytes);
    plain->release(plain->data(tensor), tensor.bytes);
  }
  EXPECT_EQ(plain->file_bytes(), mapped->file_bytes());
  std::vector<std::byte> beyond(16);
  expect_contains(checkpoint_error([&] { plain->read(plain->file_bytes() - 8, beyond); }), "has no byte");
}

// The following calls end the process or its child.
using TruncatedMapping = ChangedFiles;

TEST_F(TruncatedMapping, EndsTheProcessWithALine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    end_process_when_mapped_file_is_cut();
    TextGenerator generator = copy_.load(true);
    generate(generator, copy_, [&] { copy_.truncate(); });
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(1),
              "anyaccel: error: .*/model.safetensors: byte [0-9]+ is gone: the file was cut short while it was in use");
}

TEST_F(TruncatedMapping, EndsTheProcessFromAnotherThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    end_process_when_mapped_file_is_cut();
    const auto file = SafetensorsFile::open(copy_.weights());
    copy_.truncate();
    const TensorInfo& last = file->tensors().back();
    const auto touch = [&] { return static_cast<int>(file->data(last)[last.bytes - 1]); };
    std::thread first(touch), second(touch);
    first.join();
    second.join();
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(1), "model.safetensors: byte [0-9]+ is gone");
}

TEST_F(TruncatedMapping, NamesTheByte) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto file = SafetensorsFile::open(copy_.weights());
  const TensorInfo& last = file->tensors().back();
  const uint64_t offset = last.offset + last.bytes - 1;
  const auto run = [&] {
    end_process_when_mapped_file_is_cut();
    const auto mapped = SafetensorsFile::open(copy_.weights());
    copy_.truncate();
    std::_Exit(static_cast<int>(mapped->data(last)[last.bytes - 1]));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(1), "byte " + std::to_string(offset) + " is gone");
}

// What the kernel sends a thread that reads from an address whose memory the machine cannot correct.
void send_memory_error(const void* address) {
  siginfo_t info{};
  info.si_signo = SIGBUS;
  info.si_code = BUS_MCEERR_AR;
  info.si_addr = const_cast<void*>(address);
  ASSERT_EQ(::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGBUS, &info), 0);
}

TEST_F(TruncatedMapping, ADefectOfTheMemoryIsNotTheFiles) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto in_the_file = [&] {
    end_process_when_mapped_file_is_cut();
    const auto file = SafetensorsFile::open(copy_.weights());
    send_memory_error(file->data(file->tensors().front()));
  };
  EXPECT_EXIT(
      in_the_file(), ::testing::ExitedWithCode(1),
      "anyaccel: error: .*/model.safetensors: byte [0-9]+ lies in memory that the machine reports as defective");
  // Elsewhere the process ends as it would without the handler.
  const auto elsewhere = [] {
    ::signal(SIGBUS, SIG_DFL);
    end_process_when_mapped_file_is_cut();
    const int value = 0;
    for (int i = 0; i < 2; ++i) send_memory_error(&value);
  };
  EXPECT_EXIT(elsewhere(), ::testing::KilledBySignal(SIGBUS),
              "anyaccel: error: data of this process lies in memory that the machine reports as defective");
}

// A mapping of the program's own, cut short.
void touch_own_mapping() {
  const TestDirectory directory;
  const fs::path path = directory.write("own", std::string(8192, 'x'));
  const int fd = ::open(path.c_str(), O_RDONLY);
  void* map = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
  fs::resize_file(path, 0);
  std::_Exit(*(static_cast<volatile char*>(map) + 5000));
}

TEST(OtherBusErrors, EndTheProcessAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    ::signal(SIGBUS, SIG_DFL);  // a sanitizer has its own
    end_process_when_mapped_file_is_cut();
    touch_own_mapping();
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGBUS), "");
  const auto sent = [] {
    ::signal(SIGBUS, SIG_DFL);
    end_process_when_mapped_file_is_cut();
    ::raise(SIGBUS);
  };
  EXPECT_EXIT(sent(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST(OtherBusErrors, GoToTheHandlerThatWasThere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    ::signal(SIGBUS, [](int) { std::_Exit(33); });
    end_process_when_mapped_file_is_cut();
    touch_own_mapping();
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(33), "");
}

// A path that a former mapping used is not named for the next one at the same address.
TEST(MappedFiles, RecordsAreUsedAgain) {
  Copy copy;
  for (int i = 0; i < 1000; ++i) SafetensorsFile::open(copy.weights());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    ::signal(SIGBUS, SIG_DFL);
    end_process_when_mapped_file_is_cut();
    Copy inside;
    SafetensorsFile::open(inside.weights());
    touch_own_mapping();
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST(WholeFiles, MayNotChangeWhileTheyAreRead) {
  const TestDirectory directory;
  const fs::path path = directory.write("x.json", "{}");
  EXPECT_EQ(read_whole_file(path, 10), "{}");
  expect_contains(checkpoint_error([&] { read_whole_file(path, 1); }), "expected at most 1");
  expect_contains(checkpoint_error([&] { read_whole_file(directory.path(), 10); }), "not a file");
  expect_contains(checkpoint_error([&] { read_whole_file(directory.path() / "none", 10); }), "no such file");
  ASSERT_EQ(::mkfifo((directory.path() / "pipe").c_str(), 0600), 0);
  expect_contains(checkpoint_error([&] { read_whole_file(directory.path() / "pipe", 10); }), "not a file");
}

// A copy of a hub cache's folder of links without what they lead to: none of its files counts as absent, since without a
// generation_config.json or a tokenizer_config.json the text would be another.
TEST_F(ChangedFiles, ALinkToNothingIsAnErrorThatNamesIt) {
  for (const char* name : {"model.safetensors", "config.json", "generation_config.json", "tokenizer_config.json",
                           "tokenizer.json", "adapter_config.json"}) {
    const Copy copy;
    const fs::path file = copy.weights().parent_path() / name;
    fs::remove(file);
    fs::create_symlink("../../blobs/0123", file);
    const std::string error = checkpoint_error([&] { copy.load(true); });
    expect_contains(error, file.string());
    if (std::string(name) != "adapter_config.json")
      expect_contains(error, ": is a link to ../../blobs/0123, which does not exist");
  }
}

// transformers does not read such a folder either, by its path.
TEST(HubFolder, TheSnapshotToGiveIsNamed) {
  const TestDirectory directory;
  const fs::path root = directory.path() / "models--org--name";
  const fs::path snapshots = root / "snapshots";
  const auto error_of = [](const fs::path& given) { return checkpoint_error([&] { load_model_config(given); }); };
  fs::create_directories(snapshots);
  expect_contains(error_of(root), "config.json: no such file");  // it may be anybody's folder
  fs::create_directory(root / "blobs");
  expect_contains(error_of(root), "there is none: download the model again");
  fs::create_directory(snapshots / "0b");
  expect_contains(error_of(root), "give " + (snapshots / "0b").string());
  fs::create_directory(snapshots / "0a");
  expect_contains(error_of(root), "give one of its 2 snapshots, such as " + (snapshots / "0a").string());
  directory.write("models--org--name/refs/main", "0b\n");
  expect_contains(error_of(root), "this is a folder of the Hugging Face hub's cache");
  const std::string named = "give " + (snapshots / "0b").string() + ", which refs/main names";
  expect_contains(error_of(root), named);
  expect_contains(error_of(root / ""), named);
  expect_contains(error_of(snapshots), named);
  expect_contains(error_of(snapshots / "0b"), "0b/config.json: no such file");
  expect_contains(checkpoint_error([&] { Tokenizer::load(root); }), named);
  expect_contains(checkpoint_error([&] { LoraAdapter adapter(root); }), named);
  directory.write("models--org--name/refs/main", "../../elsewhere");
  expect_contains(error_of(root), "give one of its 2 snapshots");
}

}  // namespace
}  // namespace anyaccel::llm
