// Checks that the binary interface is unchanged: offsets, sizes, and the list of versions.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "abi/abi_offsets.h"
#include "anyaccel/abi/base.h"
#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/driver.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_code.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/op_library.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/profiler.h"
#include "runtime/driver/table_members.h"

#define PIN_OFFSET(type, member, offset) static_assert(offsetof(type, member) == (offset), #type "." #member " moved");
ANYACCEL_ABI_MEMBERS(PIN_OFFSET)
#define PIN_SIZE(type, size) static_assert(sizeof(type) == (size), #type " has another size: pin its new members");
ANYACCEL_ABI_STRUCTS(PIN_SIZE)

static_assert(AA_OK == 0 && AA_RESOURCE_EXHAUSTED == 8 && AA_UNIMPLEMENTED == 12 && AA_INCOMPATIBLE == 17);
static_assert(AA_DTYPE_BOOL == 1 && AA_DTYPE_F32 == 9 && AA_DTYPE_F8_E5M2 == 12);
static_assert(AA_REDUCE_SUM == 0 && AA_REDUCE_MIN == 2 && AA_REDUCE_AVG == 4);
static_assert(AA_MEMORY_MANAGED == 2 && AA_COPY_DEVICE_TO_DEVICE == 2 && AA_PROBE_USABLE == 2);

namespace {

std::map<std::string, std::string> read_versions() {
  std::ifstream file(ANYACCEL_SOURCE_DIR "/include/anyaccel/abi/versions.txt");
  EXPECT_TRUE(file.is_open());
  std::map<std::string, std::string> versions;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string member;
    std::string version;
    std::string rest;
    words >> member >> version;
    EXPECT_FALSE(words >> rest) << line;
    EXPECT_TRUE(versions.emplace(member, version).second) << member << " stands twice in versions.txt";
  }
  return versions;
}

TEST(AbiLayout, EveryMemberHasItsVersion) {
  const auto versions = read_versions();
  std::set<std::string> known;
#define CHECK_VERSION(type, member, offset) \
  known.insert(#type "." #member);          \
  EXPECT_TRUE(versions.contains(#type "." #member)) << #type "." #member " is not in versions.txt";
  ANYACCEL_ABI_MEMBERS(CHECK_VERSION)
  for (const auto& [member, version] : versions) {
    EXPECT_TRUE(known.contains(member)) << "versions.txt has " << member << ", which abi_offsets.h does not pin";
    unsigned major = 0;
    unsigned minor = 0;
    ASSERT_EQ(std::sscanf(version.c_str(), "%u.%u", &major, &minor), 2) << member;
    EXPECT_EQ(major, AA_ABI_MAJOR) << member;
    EXPECT_LE(minor, AA_ABI_MINOR) << member << " is of a version that is not there yet";
  }
}

// The last pinned member must be the last one of the struct, or somebody appended without pinning.
TEST(AbiLayout, NoMemberIsMissingFromTheList) {
  std::map<std::string, size_t> end;
#define FIND_END(type, member, offset) end[#type] = (offset) + sizeof(decltype(type::member));
  ANYACCEL_ABI_MEMBERS(FIND_END)
#define CHECK_END(type, size)                   \
  EXPECT_LE(end[#type], size_t{size}) << #type; \
  EXPECT_GT(end[#type] + alignof(type), size_t{size}) << #type " has members after the last one that is pinned";
  ANYACCEL_ABI_STRUCTS(CHECK_END)
}

TEST(AbiLayout, FunctionListIsComplete) {
  std::map<std::string, size_t> functions;
#define COUNT_FUNCTION(type, member, need) ++functions[#type];
  ANYACCEL_ALL_FUNCTIONS(COUNT_FUNCTION)
  constexpr size_t size = sizeof(void (*)());
  EXPECT_EQ(functions["aa_driver"], 33u);
  EXPECT_EQ(functions["aa_driver"] * size, sizeof(aa_driver) - offsetof(aa_driver, probe));
#define CHECK_COUNT(member, table, name, version, list) \
  EXPECT_EQ(functions[#table] * size, sizeof(table) - offsetof(table, self) - sizeof(void*)) << #table;
  ANYACCEL_EXTENSIONS(CHECK_COUNT)
}

TEST(AbiLayout, HasMemberComparesSizes) {
  aa_driver driver{};
  driver.struct_size = offsetof(aa_driver, mem_query);
  EXPECT_TRUE(AA_HAS_MEMBER(&driver, aa_driver, mem_free));
  EXPECT_FALSE(AA_HAS_MEMBER(&driver, aa_driver, mem_query));
}

}  // namespace
