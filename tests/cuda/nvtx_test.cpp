// Profiler ranges: what a profiler's library hears, that it is the same as from NVTX's own client, and what happens when
// there is no profiler or a broken one.
#include "accelerators/cuda/libraries/nvtx.h"

#include <dlfcn.h>

#include "cuda/loading_test_support.h"
#include "this_build.h"

#if __has_include("/usr/local/cuda/include/nvtx3/nvToolsExt.h")
#define NVTX_AS_SYSTEM_HEADER
#include "/usr/local/cuda/include/nvtx3/nvToolsExt.h"
#define HAVE_NVTX 1
#else
#define HAVE_NVTX 0
#endif

namespace anyaccel::loading_test {
namespace {

using cuda::NvtxRanges;

const std::string recorder = test::built("tests/cuda/nvtx_recorder/libnvtx_recorder.so");
const Environment profiled{{"NVTX_INJECTION64_PATH", recorder}};

std::string recorded() {
  void* library = dlopen(recorder.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!library) return "the recorder is not loaded";
  return reinterpret_cast<const char* (*)()>(dlsym(library, "nvtx_recorder_text"))();
}

TEST(Nvtx, NothingIsOpenedWithoutAProfiler) {
  EXPECT_EQ(in_child({},
                     [] {
                       NvtxRanges ranges;
                       ranges.push("a", "d", "c");
                       ranges.pop("d");
                       ranges.mark("m", "");
                       return std::string(ranges.attached() ? "attached" : "not attached") +
                              (mapped("nvtx_recorder") ? ", loaded" : "");
                     }),
            "not attached");
}

TEST(Nvtx, ProfilerHearsRangesDomainsAndCategories) {
  EXPECT_EQ(in_child(profiled,
                     [] {
                       NvtxRanges ranges;
                       ranges.push("outer", "", "");
                       ranges.push("first", "anyaccel", "op");
                       ranges.push("second", "anyaccel", "copy");
                       ranges.pop("anyaccel");
                       ranges.push("third", "anyaccel", "op");
                       ranges.pop("anyaccel");
                       ranges.pop("anyaccel");
                       ranges.push("other", "mine", "copy");
                       ranges.mark("now", "mine");
                       ranges.pop("mine");
                       ranges.push("inner", "", "op");
                       ranges.pop("");
                       ranges.mark("end", "");
                       ranges.pop("");
                       return recorded();
                     }),
            "push outer version 3 size 48 category 0\n"
            "domain anyaccel\n"
            "category 1 of anyaccel is op\n"
            "push in anyaccel: first version 3 size 48 category 1\n"
            "category 2 of anyaccel is copy\n"
            "push in anyaccel: second version 3 size 48 category 2\n"
            "pop in anyaccel\n"
            "push in anyaccel: third version 3 size 48 category 1\n"
            "pop in anyaccel\n"
            "pop in anyaccel\n"
            "domain mine\n"
            "category 1 of mine is copy\n"
            "push in mine: other version 3 size 48 category 1\n"
            "mark in mine: now version 3 size 48 category 0\n"
            "pop in mine\n"
            "category 1 is op\n"
            "push inner version 3 size 48 category 1\n"
            "pop\n"
            "mark end version 3 size 48 category 0\n"
            "pop\n");
}

TEST(Nvtx, ProfilerThatWantsLittleHearsLittle) {
  EXPECT_EQ(in_child(with(profiled, "FAKE_NVTX", "ranges"),
                     [] {
                       NvtxRanges ranges;
                       ranges.push("outer", "", "c");
                       ranges.push("first", "anyaccel", "op");
                       ranges.mark("now", "anyaccel");
                       ranges.mark("now", "");
                       ranges.pop("anyaccel");
                       ranges.pop("");
                       return recorded();
                     }),
            "push in ?: first version 3 size 48 category 1\npop in ?\n");
}

TEST(Nvtx, SecondObjectSharesTheProfiler) {
  EXPECT_EQ(in_child(profiled,
                     [] {
                       NvtxRanges first;
                       NvtxRanges second;
                       first.mark("one", "");
                       second.mark("two", "");
                       return recorded();
                     }),
            "mark one version 3 size 48 category 0\nmark two version 3 size 48 category 0\n");
}

TEST(Nvtx, BrokenProfilersAreLeftAlone) {
  for (const Environment& environment :
       {Environment{{"NVTX_INJECTION64_PATH", "/nowhere/libprofiler.so"}},
        Environment{{"NVTX_INJECTION64_PATH", fake_nvml + "/libnvidia-ml.so.1"}},  // no profiler's entry
        with(profiled, "FAKE_NVTX", "fail"), Environment{{"NVTX_INJECTION64_PATH", ""}}}) {
    EXPECT_EQ(in_child(environment,
                       [] {
                         NvtxRanges ranges;
                         ranges.push("a", "d", "c");
                         ranges.pop("d");
                         return std::string(ranges.attached() ? "attached" : "not attached");
                       }),
              "not attached")
        << environment.begin()->second;
  }
}

#if HAVE_NVTX
namespace nvtx = cuda::nvtx;
static_assert(sizeof(nvtx::EventAttributes) == sizeof(nvtxEventAttributes_t));
static_assert(offsetof(nvtx::EventAttributes, category) == offsetof(nvtxEventAttributes_t, category));
static_assert(offsetof(nvtx::EventAttributes, payload) == offsetof(nvtxEventAttributes_t, payload));
static_assert(offsetof(nvtx::EventAttributes, message_type) == offsetof(nvtxEventAttributes_t, messageType));
static_assert(offsetof(nvtx::EventAttributes, message) == offsetof(nvtxEventAttributes_t, message));
static_assert(int{nvtx::version} == NVTX_VERSION && nvtx::message_ascii == NVTX_MESSAGE_TYPE_ASCII);
static_assert(int{nvtx::core_mark} == NVTX_CBID_CORE_MarkEx &&
              int{nvtx::core_range_push} == NVTX_CBID_CORE_RangePushEx);
static_assert(int{nvtx::core_range_pop} == NVTX_CBID_CORE_RangePop);
static_assert(int{nvtx::core_name_category} == NVTX_CBID_CORE_NameCategoryA);
static_assert(int{nvtx::core2_mark} == NVTX_CBID_CORE2_DomainMarkEx);
static_assert(int{nvtx::core2_range_push} == NVTX_CBID_CORE2_DomainRangePushEx);
static_assert(int{nvtx::core2_range_pop} == NVTX_CBID_CORE2_DomainRangePop);
static_assert(int{nvtx::core2_name_category} == NVTX_CBID_CORE2_DomainNameCategoryA);
static_assert(int{nvtx::core2_domain_create} == NVTX_CBID_CORE2_DomainCreateA);
static_assert(nvtx::module_sizes[NVTX_CB_MODULE_CORE] == NVTX_CBID_CORE_SIZE);
static_assert(nvtx::module_sizes[NVTX_CB_MODULE_CORE2] == NVTX_CBID_CORE2_SIZE);
static_assert(nvtx::module_sizes[NVTX_CB_MODULE_CUDA] == NVTX_CBID_CUDA_SIZE);
static_assert(nvtx::module_sizes[NVTX_CB_MODULE_CUDART] == NVTX_CBID_CUDART_SIZE);
static_assert(nvtx::module_sizes[NVTX_CB_MODULE_OPENCL] == NVTX_CBID_OPENCL_SIZE);
static_assert(nvtx::module_sizes[NVTX_CB_MODULE_SYNC] == NVTX_CBID_SYNC_SIZE);
static_assert(int{nvtx::module_core} == NVTX_CB_MODULE_CORE && int{nvtx::module_core2} == NVTX_CB_MODULE_CORE2);
static_assert(int{nvtx::export_callbacks} == NVTX_ETID_CALLBACKS && int{nvtx::export_version} == NVTX_ETID_VERSIONINFO);

nvtxEventAttributes_t event(const char* message, uint32_t category) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = category;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = message;
  return attributes;
}

// The same calls by NVTX's own client and by ours give the same.
TEST(Nvtx, SameAsNvidiasClient) {
  const std::string theirs = in_child(profiled, [] {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("d");
    nvtxDomainNameCategoryA(domain, 1, "c");
    nvtxEventAttributes_t attributes = event("range", 1);
    nvtxDomainRangePushEx(domain, &attributes);
    attributes = event("instant", 0);
    nvtxDomainMarkEx(domain, &attributes);
    nvtxDomainRangePop(domain);
    nvtxNameCategoryA(1, "k");
    attributes = event("plain", 1);
    nvtxRangePushEx(&attributes);
    nvtxRangePop();
    attributes = event("spot", 0);
    nvtxMarkEx(&attributes);
    return recorded();
  });
  const std::string ours = in_child(profiled, [] {
    NvtxRanges ranges;
    ranges.push("range", "d", "c");
    ranges.mark("instant", "d");
    ranges.pop("d");
    ranges.push("plain", "", "k");
    ranges.pop("");
    ranges.mark("spot", "");
    return recorded();
  });
  EXPECT_CONTAINS(theirs, "push in d: range");
  EXPECT_EQ(theirs, ours);
}
#else
TEST(Nvtx, SameAsNvidiasClient) { GTEST_SKIP() << "no NVTX headers in /usr/local/cuda/include/nvtx3"; }
#endif

}  // namespace
}  // namespace anyaccel::loading_test
