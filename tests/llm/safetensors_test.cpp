// Reading and writing safetensors files: stored checkpoints, round trips, and damaged files of every kind.
#include "anyaccel/llm/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "cpu_time_growth.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

const std::filesystem::path fixtures = std::filesystem::path(ANYACCEL_TEST_DATA) / "models";

std::string file_text(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

std::string open_error(const std::string& content) {
  const TestDirectory dir;
  const auto path = dir.write("model.safetensors", content);
  const std::string message = checkpoint_error([&] { SafetensorsFile::open(path); });
  expect_contains(message, path.string());
  return message;
}

std::string header_error(const std::string& header, const std::string& data = "") {
  return open_error(file_text(header, data));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(Safetensors, OpensEveryStoredModel) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures)) {
    SCOPED_TRACE(entry.path().string());
    const Checkpoint checkpoint = Checkpoint::open(entry.path());
    ++found;
    const TensorView& embedding = checkpoint.at("model.embed_tokens.weight");
    EXPECT_EQ(embedding.dtype, DType::BF16);
    ASSERT_EQ(embedding.shape.size(), 2u);
    EXPECT_EQ(embedding.shape[0], 320);
    EXPECT_EQ(embedding.shape[1], 64);
    EXPECT_EQ(embedding.bytes, 320u * 64 * 2);
    EXPECT_GT(checkpoint.total_bytes(), embedding.bytes);
    EXPECT_TRUE(std::is_sorted(checkpoint.names().begin(), checkpoint.names().end()));
    for (const std::string& name : checkpoint.names()) EXPECT_NE(checkpoint.find(name), nullptr);
    EXPECT_EQ(checkpoint.find("no.such.tensor"), nullptr);
    expect_contains(checkpoint_error([&] { checkpoint.at("no.such.tensor"); }), "no.such.tensor");
  }
  EXPECT_GE(found, 10);
  EXPECT_EQ(Checkpoint::open(fixtures / "llama_bias").files().size(), 2u);
}

TEST(Safetensors, DataStaysReadableAfterHints) {
  const Checkpoint checkpoint = Checkpoint::open(fixtures / "llama_gqa");
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    const std::string before(reinterpret_cast<const char*>(view.data), view.bytes);
    checkpoint.will_need(view);
    checkpoint.populate(view);
    checkpoint.release(view);
    EXPECT_EQ(std::memcmp(before.data(), view.data, view.bytes), 0) << name;
  }
}

// Weights come into the page cache in large pages where the file system has them: the mapping asks for it.
TEST(Safetensors, MappedWeightsAskForLargePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the system has no large pages";
  const TestDirectory dir;
  const std::string header = R"({"a":{"dtype":"U8","shape":[9000],"data_offsets":[0,9000]}})";
  const auto path = dir.write("model.safetensors", file_text(header, std::string(9000, 'x')));
  const auto file = SafetensorsFile::open(path);
  std::ifstream mappings("/proc/self/smaps");
  bool found = false, inside = false;
  for (std::string line; std::getline(mappings, line);) {
    if (line.ends_with(std::filesystem::canonical(path).string())) inside = true;
    if (!inside || !line.starts_with("VmFlags:")) continue;
    EXPECT_NE((line + " ").find(" hg "), std::string::npos) << line;
    found = true;
    break;
  }
  EXPECT_TRUE(found) << "the file is not mapped";
}

TEST(Safetensors, ReadsWhatTheWriterWrote) {
  const TestDirectory dir;
  const auto path = dir.path() / "out.safetensors";
  const std::string a = "0123456789ab";
  const std::string b = "xyz";
  SafetensorsWriter writer(path,
                           {{"a \"quoted\" \\ \n näme", DType::F32, {3, 1}},
                            {"none", DType::BF16, {0, 7}},
                            {"b", DType::U8, {3}},
                            {"scalar", DType::F16, {}}},
                           {{"format", "pt"}, {"ключ", "\t"}});
  EXPECT_EQ(writer.total(), 17u);
  EXPECT_FALSE(std::filesystem::exists(path));
  const std::string all = a + b + "hh";
  for (size_t i = 0; i < all.size(); i += 5)
    writer.append(bytes_of(all).subspan(i, std::min<size_t>(5, all.size() - i)));
  EXPECT_EQ(writer.written(), 17u);
  writer.finish();
  EXPECT_THROW(writer.finish(), InvalidArgument);
  EXPECT_THROW(writer.append({}), InvalidArgument);

  const auto file = SafetensorsFile::open(path);
  ASSERT_EQ(file->tensors().size(), 4u);
  const TensorInfo* first = file->find("a \"quoted\" \\ \n näme");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(first->offset % 64, 0u);
  EXPECT_EQ(std::memcmp(file->data(*first), a.data(), a.size()), 0);
  EXPECT_EQ(std::memcmp(file->data(*file->find("b")), b.data(), b.size()), 0);
  EXPECT_EQ(file->find("none")->bytes, 0u);
  EXPECT_TRUE(file->find("scalar")->shape.empty());
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"format", "pt"}, {"ключ", "\t"}}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Safetensors, WriterLeavesNothingBehind) {
  const TestDirectory dir;
  const auto path = dir.write("out.safetensors", "old");
  {
    SafetensorsWriter writer(path, {{"a", DType::U8, {3}}, {"b", DType::U8, {3}}});
    writer.append(bytes_of("1234"));
    EXPECT_THROW(writer.append(bytes_of("567")), InvalidArgument);
    try {
      writer.finish();
      FAIL();
    } catch (const InvalidArgument& error) {
      expect_contains(error.what(), "\"b\"");
    }
  }
  EXPECT_EQ(testing::read_text(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  using Specs = std::vector<TensorSpec>;
  for (const Specs& bad :
       {Specs{{"a", DType::U8, {-1}}}, Specs{{"a", DType::None, {1}}}, Specs{{"", DType::U8, {1}}},
        Specs{{"__metadata__", DType::U8, {1}}}, Specs{{"\xff", DType::U8, {1}}},
        Specs{{"a", DType::U8, {1}}, {"a", DType::U8, {1}}}, Specs{{"a", DType::F32, {INT64_MAX, 2}}},
        Specs{{"a", DType::U8, {INT64_MAX}}, {"b", DType::U8, {INT64_MAX}}}}) {
    EXPECT_THROW(SafetensorsWriter(path, bad), InvalidArgument);
  }
  EXPECT_THROW(SafetensorsWriter(dir.path() / "no" / "such", {{"a", DType::U8, {1}}}), Error);
  const std::string data = "12";
  const std::array<std::span<const std::byte>, 1> one = {bytes_of(data)};
  EXPECT_THROW(write_safetensors(path, {{"a", DType::U8, {1}}}, one), InvalidArgument);
  EXPECT_THROW(write_safetensors(path, {}, one), InvalidArgument);
  write_safetensors(path, {{"a", DType::U8, {2}}}, one);
  EXPECT_EQ(SafetensorsFile::open(path)->tensors().size(), 1u);
}

TEST(Safetensors, BadLengthsAreRefused) {
  expect_contains(open_error(""), "at least 8");
  open_error("1234567");
  expect_contains(open_error(std::string(8, '\xff')), "header's length");
  expect_contains(open_error(file_text("{}", "").substr(0, 9)), "cut short");
  open_error(file_text("", ""));
  open_error(std::string("\x00\xe1\xf5\x05\x00\x00\x00\x01", 8) + "{}");
  header_error("[]");
  header_error(" {}");
  header_error("{} x");
  header_error("{\"a\":", "");
  const std::string good = testing::read_text(fixtures / "llama_tied" / "model.safetensors");
  for (const size_t size : {good.size() - 1, good.size() / 2, size_t{4000}, size_t{100}, size_t{9}}) {
    SCOPED_TRACE(size);
    open_error(good.substr(0, size));
  }
  expect_contains(open_error(good + "x"), "where the file ends");
  EXPECT_TRUE(SafetensorsFile::open(TestDirectory().write("x", file_text("{}", "")))->tensors().empty());
}

TEST(Safetensors, BadEntriesAreRefused) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"layer.w": {"dtype": )" + dtype + R"(, "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  const std::string data(8, 'x');
  const TestDirectory dir;
  EXPECT_EQ(SafetensorsFile::open(dir.write("a", file_text(entry("\"F32\"", "[2]", "[0,8]"), data)))->tensors().size(),
            1u);
  struct Case {
    const char* dtype;
    const char* shape;
    const char* offsets;
  };
  for (const Case& bad : std::initializer_list<Case>{
           {"\"F31\"", "[2]", "[0,8]"},
           {"\"U64\"", "[1]", "[0,8]"},
           {"7", "[2]", "[0,8]"},
           {"\"F32\"", "2", "[0,8]"},
           {"\"F32\"", "[-2]", "[0,8]"},
           {"\"F32\"", "[2.5]", "[0,8]"},
           {"\"F32\"", "[\"2\"]", "[0,8]"},
           {"\"F32\"", "[4294967296,4294967296]", "[0,8]"},
           {"\"F32\"", "[9223372036854775807,9223372036854775807,0]", "[0,8]"},
           {"\"F32\"", "[18446744073709551618]", "[0,8]"},
           {"\"F32\"", "[3]", "[0,8]"},
           {"\"F32\"", "[1]", "[0,8]"},
           {"\"F32\"", "[2]", "[0,9]"},
           {"\"F32\"", "[2]", "[8,0]"},
           {"\"F32\"", "[2]", "[-1,7]"},
           {"\"F32\"", "[2]", "[0]"},
           {"\"F32\"", "[2]", "[0,8,9]"},
           {"\"F32\"", "[2]", "{}"},
           {"\"F32\"", "[2]", "[0,18446744073709551615]"},
           {"\"F32\"", "[2]", "[18446744073709551608,8]"},
           {"\"F32\"", "[1]", "[4,8]"},
           {"\"F32\"", "[1]", "[0,4]"},
       }) {
    SCOPED_TRACE(entry(bad.dtype, bad.shape, bad.offsets));
    const std::string message = header_error(entry(bad.dtype, bad.shape, bad.offsets), data);
    EXPECT_TRUE(message.find("layer.w") != std::string::npos || message.find("the file ends") != std::string::npos)
        << message;
  }
  expect_contains(header_error(R"({"a": {"shape": [], "data_offsets": [0, 0]}})"), "a.dtype");
  expect_contains(header_error(R"({"a": {"dtype": "U8", "data_offsets": [0, 0]}})"), "a.shape");
  expect_contains(header_error(R"({"a": {"dtype": "U8", "shape": []}})"), "a.data_offsets");
  header_error(R"({"a": 5})");
  header_error(R"({"__metadata__": {"a": 5}})");
  header_error(R"({"__metadata__": []})");
}

TEST(Safetensors, OverlapsHolesAndRepeatsAreRefused) {
  const auto tensor = [](const char* name, int begin, int end) {
    return "\"" + std::string(name) + R"(": {"dtype": "U8", "shape": [)" + std::to_string(end - begin) +
           R"(], "data_offsets": [)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const std::string data(8, 'x');
  expect_contains(header_error("{" + tensor("a", 0, 6) + "," + tensor("b", 4, 8) + "}", data), "inside the tensor");
  expect_contains(header_error("{" + tensor("a", 0, 3) + "," + tensor("b", 4, 8) + "}", data), "gap");
  expect_contains(header_error("{" + tensor("a", 0, 8) + "," + tensor("b", 0, 8) + "}", data), "inside the tensor");
  expect_contains(header_error("{" + tensor("a", 0, 8) + "," + tensor("a", 0, 8) + "}", data), "twice");
  const TestDirectory dir;
  const auto good = dir.write(
      "a", file_text("{" + tensor("b", 4, 8) + "," + tensor("a", 0, 4) + "," + tensor("none", 4, 4) + "}   ", data));
  EXPECT_EQ(SafetensorsFile::open(good)->tensors()[0].name, "a");
}

// Not in time that grows with the square of their number.
TEST(Safetensors, ManyTensorsParseQuickly) {
  constexpr size_t kMost = 100000;
  const TestDirectory dir;
  std::map<size_t, std::filesystem::path> files;
  for (const size_t count : {kMost / 8, kMost}) {
    std::string header = "{";
    for (size_t i = 0; i < count; ++i) {
      header += (i == 0 ? "" : ",") + std::string("\"model.layers.") + std::to_string(i) +
                R"(.weight":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
                std::to_string(i + 1) + "]}";
    }
    files[count] = dir.write(std::to_string(count), file_text(header + "}", std::string(count, 'x')));
  }
  const double growth = anyaccel::testing::cpu_time_growth(
      kMost, [&](size_t count) { EXPECT_EQ(SafetensorsFile::open(files.at(count))->tensors().size(), count); });
  EXPECT_LT(growth, anyaccel::testing::kMostGrowth);
}

TEST(Checkpoint, BadIndexesAreRefused) {
  const TestDirectory dir;
  const auto index = [&](const std::string& text) {
    dir.write("model.safetensors.index.json", text);
    return checkpoint_error([&] { Checkpoint::open(dir.path()); });
  };
  dir.write("s.safetensors", file_text(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", "x"));
  dir.write("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"a": "s.safetensors"}})");
  EXPECT_EQ(Checkpoint::open(dir.path()).names(), (std::vector<std::string>{"a"}));
  expect_contains(index(R"({"weight_map": {"b": "s.safetensors"}})"), "no tensor \"b\"");
  expect_contains(index(R"({"weight_map": {"a": "../s.safetensors"}})"), "../s.safetensors");
  expect_contains(index(R"({"weight_map": {"a": "x/../../s.safetensors"}})"), "name of a file in the directory");
  expect_contains(index(R"({"weight_map": {"a": "/etc/passwd"}})"), "/etc/passwd");
  expect_contains(index(R"({"weight_map": {"a": "missing.safetensors"}})"), "missing.safetensors");
  index(R"({"weight_map": {"a": ""}})");
  index(R"({"weight_map": {"a": "."}})");
  index(R"({"weight_map": {"a": "s.safetensors\u0000"}})");
  index(R"({"weight_map": {"a": 3}})");
  index(R"({"weight_map": []})");
  index(R"({})");
  index("[1]");
}

TEST(Checkpoint, MissingWeights) {
  const TestDirectory dir;
  expect_contains(checkpoint_error([&] { Checkpoint::open(dir.path()); }), "expected model.safetensors");
  dir.write("pytorch_model.bin", "x");
  expect_contains(checkpoint_error([&] { Checkpoint::open(dir.path()); }), "pytorch_model.bin");
  checkpoint_error([&] { Checkpoint::open(dir.path() / "nowhere"); });
  std::filesystem::create_directory(dir.path() / "model.safetensors");
  checkpoint_error([&] { Checkpoint::open(dir.path()); });
}

}  // namespace
}  // namespace anyaccel::llm
