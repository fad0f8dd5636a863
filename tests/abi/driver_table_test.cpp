// Completing tables: what is missing becomes a stub, what is absurd is refused with both versions in the text.
#include "runtime/driver/driver_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "abi/fake_driver.h"
#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"

namespace anyaccel {
namespace {

aa_driver full_table() { return *fake::raw_table(); }

std::string refusal(const aa_driver* raw) {
  try {
    complete_table(raw, "some file");
  } catch (const UnavailableError& error) {
    EXPECT_EQ(error.code(), AA_INCOMPATIBLE);
    return error.what();
  }
  ADD_FAILURE() << "the table was accepted";
  return "";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(CompleteTable, KeepsWhatIsThere) {
  const aa_driver raw = full_table();
  const abi::DriverCalls* table = complete_table(&raw, "some file");
  EXPECT_EQ(std::memcmp(static_cast<const void*>(table), &raw, sizeof(raw)), 0);
  EXPECT_EQ(complete_table(&raw, "some file"), table) << "the same table gave two copies";
}

TEST(CompleteTable, StubsAnswerUnimplementedAndTouchNothing) {
  aa_driver raw = full_table();
  raw.mem_query = nullptr;
  raw.event_elapsed = nullptr;
  raw.vendor = nullptr;
  const abi::DriverCalls* table = complete_table(&raw, "some file");
  EXPECT_STREQ(table->vendor, "");
  aa_memory_info info{};
  info.struct_size = sizeof(info);
  info.kind = 77;
  const StatusRef query(table->mem_query(nullptr, nullptr, &info));
  EXPECT_EQ(query.code(), AA_UNIMPLEMENTED);
  EXPECT_HAS(std::string(query.message()), "mem_query");
  EXPECT_EQ(info.kind, 77);
  double milliseconds = -1;
  EXPECT_EQ(StatusRef(table->event_elapsed(nullptr, nullptr, &milliseconds)).code(), AA_UNIMPLEMENTED);
  EXPECT_EQ(milliseconds, -1);
}

TEST(CompleteTable, OlderTablesAreReadNoFurtherThanTheyReach) {
  // Only the part that an older driver has is there at all; the sanitizer sees a read beyond.
  constexpr size_t size = offsetof(aa_driver, stream_wait_event);
  const aa_driver whole = full_table();
  std::vector<uint64_t> storage(size / sizeof(uint64_t));
  std::memcpy(storage.data(), &whole, size);
  auto* old = reinterpret_cast<aa_driver*>(storage.data());
  old->struct_size = size;
  const abi::DriverCalls* table = complete_table(old, "some file");
  EXPECT_EQ(table->struct_size, sizeof(aa_driver));
  EXPECT_EQ(static_cast<const aa_driver*>(table)->stream_synchronize, whole.stream_synchronize);
  aa_event* event = nullptr;
  EXPECT_EQ(StatusRef(table->event_create(nullptr, 0, &event)).code(), AA_UNIMPLEMENTED);
  EXPECT_EQ(StatusRef(table->kernel_launch(nullptr, nullptr, nullptr)).code(), AA_UNIMPLEMENTED);
}

TEST(CompleteTable, NewerTablesAreCut) {
  struct Newer {
    aa_driver driver;
    void (*function_of_the_future)();
  };
  Newer newer{full_table(), nullptr};
  newer.driver.struct_size = sizeof(newer);
  newer.driver.abi_version = AA_ABI_VERSION(AA_ABI_MAJOR, AA_ABI_MINOR + 7);
  EXPECT_EQ(complete_table(&newer.driver, "some file")->struct_size, sizeof(aa_driver));
}

std::string host_version() { return std::to_string(AA_ABI_MAJOR) + "." + std::to_string(AA_ABI_MINOR); }

TEST(CompleteTable, RefusesAnotherMajorWithBothVersions) {
  aa_driver raw = full_table();
  raw.abi_version = AA_ABI_VERSION(AA_ABI_MAJOR + 1, 4);
  const std::string text = refusal(&raw);
  EXPECT_HAS(text, "some file");
  EXPECT_HAS(text, std::to_string(AA_ABI_MAJOR + 1) + ".4");
  EXPECT_HAS(text, "version " + host_version());
}

TEST(CompleteTable, RefusesGarbageSizes) {
  for (const uint32_t size : {0u, 4u, 7u, 9u, 100u + 3u, 0x5a5a5a5au, 0xffffffffu}) {
    aa_driver raw = full_table();
    raw.struct_size = size;
    const std::string text = refusal(&raw);
    EXPECT_HAS(text, "struct_size " + std::to_string(size));
    EXPECT_HAS(text, "version " + host_version());
  }
}

TEST(CompleteTable, NamesEveryMissingRequiredFunction) {
  aa_driver raw = full_table();
  raw.probe = nullptr;
  raw.mem_free = nullptr;
  raw.stream_query = nullptr;  // optional
  const std::string text = refusal(&raw);
  EXPECT_HAS(text, "probe, mem_free");
  EXPECT_EQ(text.find("stream_query"), std::string::npos) << text;
}

TEST(CompleteTable, RefusesNullAndBadNames) {
  EXPECT_HAS(refusal(nullptr), host_version());
  for (const char* name : {static_cast<const char*>(nullptr), "", "CUDA", "1cpu", "a b", "a/../b", "\xc3\xbc"}) {
    aa_driver raw = full_table();
    raw.name = name;
    EXPECT_HAS(refusal(&raw), "name");
  }
}

TEST(CompleteExtension, FillsAndRefuses) {
  aa_profiler_table raw{};
  raw.struct_size = offsetof(aa_profiler_table, mark);
  raw.version = 1;
  const auto* table = complete_extension(&raw, "fake");
  ASSERT_NE(table, nullptr);
  const StatusRef status(table->mark(nullptr, nullptr, nullptr));
  EXPECT_EQ(status.code(), AA_UNIMPLEMENTED);
  EXPECT_HAS(std::string(status.message()), "profiler.mark");

  const LogLevel before = log_level();
  set_log_level(LogLevel::off);
  EXPECT_EQ(complete_extension(static_cast<const aa_ops_table*>(nullptr), "fake"), nullptr);
  aa_ops_table garbage{};
  garbage.struct_size = 0xffffffff;
  garbage.version = 1;
  EXPECT_EQ(complete_extension(&garbage, "fake"), nullptr);
  garbage.struct_size = sizeof(garbage);
  garbage.version = 0;
  EXPECT_EQ(complete_extension(&garbage, "fake"), nullptr);
  set_log_level(before);
}

TEST(DriverName, Rules) {
  for (const char* good : {"cpu", "xpu.external", "a1", "x"}) EXPECT_TRUE(is_valid_driver_name(good)) << good;
  EXPECT_TRUE(is_valid_driver_name(std::string(63, 'a')));
  EXPECT_FALSE(is_valid_driver_name(std::string(64, 'a')));
}

TEST(CompleteTable, RefusesSettingsWithoutTexts) {
  aa_driver raw = full_table();
  const aa_option_info options[] = {{"mode", "how it works", ""}, {"depth", "how deep it goes", nullptr}};
  raw.options = options;
  raw.option_count = 2;
  const std::string text = refusal(&raw);
  EXPECT_HAS(text, "setting 1");
  EXPECT_HAS(text, "\"depth\"");
}

TEST(CompleteTable, RefusesAnotherDraftWithBoth) {
  aa_driver raw = full_table();
  raw.abi_draft = AA_ABI_DRAFT + 5;
  const std::string text = refusal(&raw);
  EXPECT_HAS(text, "draft " + std::to_string(AA_ABI_DRAFT + 5));
  EXPECT_HAS(text, "this host speaks draft " + std::to_string(AA_ABI_DRAFT));
  EXPECT_HAS(text, "rebuild");
}

}  // namespace
}  // namespace anyaccel
