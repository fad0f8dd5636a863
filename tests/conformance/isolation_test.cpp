// Damage that a driver does to its process fails one case only: crashes, exit(), hangs, closed descriptors, output. The
// suite continues with the next case, and no run succeeds in which a case did not finish or a promise was not tested.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "accelerators/null/null_driver.h"
#include "conformance/suite.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

using conformance::Outcome;

const abi::DriverCalls* good = nullptr;

aa_driver null_driver() {
  good = complete_table(anyaccel_null_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()),
                        "built in");
  return *good;
}

std::map<std::string, conformance::CaseResult> run(const aa_driver& driver, const char* filter,
                                                   int timeout_seconds = 120) {
  std::map<std::string, conformance::CaseResult> results;
  for (auto& result : conformance::run_conformance(&driver, host_services(), filter, {},
                                                   {.timeout = std::chrono::seconds(timeout_seconds)})
                          .cases) {
    results[result.group + "." + result.name] = result;
  }
  return results;
}

// Seconds: longer than a case that does not hang takes under a sanitizer beside other tests.
constexpr int busy_machine = 5;

bool has(const conformance::CaseResult& result, const char* text) {
  return result.message.find(text) != std::string::npos;
}

TEST(Isolation, ACrashIsOneCasesFailure) {
  aa_driver driver = null_driver();
  driver.mem_query = [](auto...) -> aa_status* { std::abort(); };
  const auto results = run(driver, "memory.");
  const auto& crashed = results.at("memory.query_finds_allocations");
  EXPECT_EQ(crashed.outcome, Outcome::fail);
  EXPECT_TRUE(has(crashed, "died of signal 6 (Aborted) while the case ran")) << crashed.message;
  EXPECT_EQ(results.at("memory.pinned_memory").outcome, results.at("memory.managed_memory").outcome);
  EXPECT_EQ(results.at("memory.contents_stay_apart").outcome, Outcome::pass);
  EXPECT_EQ(results.at("memory.allocates_from_threads").outcome, Outcome::pass);
}

TEST(Isolation, ExitIsOneCasesFailure) {
  aa_driver driver = null_driver();
  driver.fill_async = [](auto...) -> aa_status* { std::_Exit(0); };
  const auto results = run(driver, "fills.every_pattern,copies.there_and_back");
  const auto& ended = results.at("fills.every_pattern");
  EXPECT_EQ(ended.outcome, Outcome::fail);
  EXPECT_TRUE(has(ended, "ended by itself with exit code 0")) << ended.message;
  EXPECT_EQ(results.at("copies.there_and_back").outcome, Outcome::pass);
}

TEST(Isolation, AHangIsOneCasesFailure) {
  aa_driver driver = null_driver();
  driver.fill_async = [](auto...) -> aa_status* {
    for (;;) pause();
  };
  const auto results = run(driver, "fills.every_pattern,copies.there_and_back", busy_machine);
  const auto& hung = results.at("fills.every_pattern");
  EXPECT_EQ(hung.outcome, Outcome::fail);
  EXPECT_TRUE(has(hung, "did not end within 5 s and was killed while the case ran")) << hung.message;
  EXPECT_EQ(results.at("copies.there_and_back").outcome, Outcome::pass);
}

TEST(Isolation, WhatFailsToOpenIsNotTriedForEachCase) {
  aa_driver driver = null_driver();
  driver.initialize = [](auto...) -> aa_status* { std::_Exit(3); };
  const auto results = run(driver, "");
  EXPECT_EQ(results.size(), conformance::conformance_cases().size());
  EXPECT_TRUE(has(results.at("life.opens"), "exit code 3 while the driver was opened"));
  EXPECT_EQ(results.at("copies.there_and_back").outcome, Outcome::fail);
  EXPECT_EQ(results.at("promises.synchronous").outcome, Outcome::fail);
}

TEST(Isolation, UsableAndNotThereIsAFailure) {
  aa_driver driver = null_driver();
  driver.initialize = [](auto...) {
    return host_services()->status_create(host_services(), AA_UNAVAILABLE, 0, "not today", 9);
  };
  const auto results = run(driver, "copies.");
  EXPECT_EQ(results.at("copies.there_and_back").outcome, Outcome::unavailable);
  const auto& opens = results.at("life.opens");  // though the filter does not take it
  EXPECT_EQ(opens.outcome, Outcome::fail);
  EXPECT_TRUE(has(opens, "not today")) << opens.message;
}

TEST(Isolation, AHangInClosingIsToldOnce) {
  aa_driver driver = null_driver();
  driver.shutdown = [](auto...) -> aa_status* {
    for (;;) pause();
  };
  const auto results = run(driver, "copies.", busy_machine);
  for (const auto& [name, result] : results) {
    if (result.group == "copies") {
      EXPECT_EQ(result.outcome, Outcome::pass) << name;
    }
  }
  const auto& closes = results.at("life.closes_without_error");
  EXPECT_EQ(closes.outcome, Outcome::fail);
  EXPECT_TRUE(has(closes, "was killed while the driver was closed")) << closes.message;
}

TEST(Isolation, ClosedFileDescriptorsAndPrintsChangeNoReport) {
  aa_driver driver = null_driver();
  driver.fill_async = [](void*, aa_stream* stream, const aa_fill* what) {
    for (int file = 3; file < 1000; ++file) close(file);
    return good->fill_async(stream, what);
  };
  EXPECT_EQ(run(driver, "fills.every_pattern").at("fills.every_pattern").outcome, Outcome::pass);
  driver.fill_async = [](void*, aa_stream* stream, const aa_fill* what) {
    std::puts("hello from the driver");
    return good->fill_async(stream, what);
  };
  testing::internal::CaptureStdout();
  const auto printed = run(driver, "fills.every_pattern").at("fills.every_pattern");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(printed.outcome, Outcome::fail);
  EXPECT_TRUE(has(printed, "hello from the driver")) << printed.message;
}

// The flag is promised and nothing in the suite could test it: streams without host calls hold nothing back.
TEST(Isolation, APromiseThatNoCaseTestedIsAFailure) {
  aa_driver driver = null_driver();
  driver.device_props = [](void*, aa_instance* instance, int32_t index, aa_device_props* out) {
    aa_status* status = good->device_props(instance, index, out);
    if (!status && out->struct_size == sizeof(*out)) {
      out->caps &= ~AA_CAP_HOST_CALL;
      out->caps |= AA_CAP_CONCURRENT_STREAMS;
    }
    return status;
  };
  const auto results = run(driver, "");
  const auto& promise = results.at("promises.concurrent_streams");
  EXPECT_EQ(promise.outcome, Outcome::fail);
  EXPECT_TRUE(has(promise, "no case that tests it")) << promise.message;
  EXPECT_EQ(results.at("promises.host_coherent").outcome, Outcome::pass);
}

TEST(Isolation, TheCallsOfChildrenAreCounted) {
  const aa_driver driver = null_driver();
  for (const bool in_process : {false, true}) {
    int64_t copies = 0;
    const auto report =
        conformance::run_conformance(&driver, host_services(), "copies.there_and_back", {}, {.in_process = in_process});
    for (const auto& row : report.coverage) {
      if (row.table == "driver" && row.function == "copy_async") copies = row.calls;
    }
    EXPECT_GT(copies, 5) << in_process;
  }
}

}  // namespace
}  // namespace anyaccel
