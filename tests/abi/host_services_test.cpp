// Status objects and their way into exceptions and back.
#include "runtime/driver/host_services.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/error.h"

namespace anyaccel {
namespace {

template <class Body>
aa_status* status_of(Body body) {
  try {
    body();
  } catch (...) {
    return status_from_current_exception();
  }
  return nullptr;
}

TEST(HostServices, StatusKeepsWhatItWasGiven) {
  const aa_host* host = host_services();
  ASSERT_EQ(host->struct_size, sizeof(aa_host));
  EXPECT_EQ(host->abi_version, AA_ABI_CURRENT);
  aa_status* status = host->status_create(host, AA_NOT_FOUND, -9, "not terminated!", 3);
  ASSERT_NE(status, nullptr);
  EXPECT_EQ(host->status_code(host, status), AA_NOT_FOUND);
  EXPECT_EQ(host->status_native_code(host, status), -9);
  EXPECT_STREQ(host->status_message(host, status), "not");
  EXPECT_EQ(live_status_count(), 1);
  host->status_release(host, status);
  EXPECT_EQ(live_status_count(), 0);
}

TEST(HostServices, NullAndOddArgumentsAreSafe) {
  const aa_host* host = host_services();
  EXPECT_EQ(host->status_code(host, nullptr), AA_OK);
  EXPECT_EQ(host->status_native_code(host, nullptr), 0);
  EXPECT_STREQ(host->status_message(host, nullptr), "");
  host->status_release(host, nullptr);
  const StatusRef no_text(host->status_create(host, AA_INTERNAL, 0, nullptr, 100));
  EXPECT_EQ(no_text.message(), "");
  // A status is an error whatever its code says.
  EXPECT_EQ(StatusRef(host->status_create(host, AA_OK, 0, "", 0)).code(), AA_UNKNOWN);
  EXPECT_EQ(StatusRef(host->status_create(host, 12345, 0, "", 0)).code(), AA_UNKNOWN);
  EXPECT_EQ(StatusRef(host->status_create(host, -1, 0, "", 0)).code(), AA_UNKNOWN);
  host->log(host, 99, nullptr, 5);
}

TEST(HostServices, LongMessagesAreCut) {
  const std::string text(3u << 20, 'x');
  EXPECT_EQ(StatusRef(make_status(AA_INTERNAL, text)).message().size(), size_t{1} << 20);
}

TEST(HostServices, ThreadsMakeAndReleaseStatuses) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) StatusRef(make_status(AA_ABORTED, "from a thread", i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(live_status_count(), 0);
}

TEST(StatusRef, TextAndOwnership) {
  EXPECT_EQ(StatusRef().text(), "OK");
  EXPECT_TRUE(StatusRef(nullptr).ok());
  StatusRef first(make_status(AA_UNAVAILABLE, "gone", 3));
  EXPECT_EQ(first.text(), "UNAVAILABLE: gone (vendor error 3)");
  StatusRef second(std::move(first));
  EXPECT_TRUE(first.ok());  // NOLINT(bugprone-use-after-move): moved from means empty
  aa_status* raw = second.release();
  EXPECT_TRUE(second.ok());
  second = StatusRef(raw);
  EXPECT_EQ(second.code(), AA_UNAVAILABLE);
}

template <class Exception>
void expect_thrown(aa_code code) {
  try {
    check(make_status(code, "why", 42), "mem_alloc", "fake");
    FAIL() << "nothing was thrown for " << code_name(code);
  } catch (const Exception& error) {
    EXPECT_STREQ(error.what(), "fake: mem_alloc: why (vendor error 42)");
    EXPECT_EQ(error.code(), code);
  }
  EXPECT_EQ(live_status_count(), 0);
}

TEST(Check, ChoosesTheException) {
  check(nullptr, "probe", "fake");
  for (const aa_code code : {AA_UNAVAILABLE, AA_INCOMPATIBLE, AA_PERMISSION_DENIED}) {
    expect_thrown<UnavailableError>(code);
  }
  expect_thrown<OutOfMemoryError>(AA_RESOURCE_EXHAUSTED);
  for (const aa_code code :
       {AA_INVALID_ARGUMENT, AA_OUT_OF_RANGE, AA_FAILED_PRECONDITION, AA_NOT_FOUND, AA_ALREADY_EXISTS}) {
    expect_thrown<InvalidArgument>(code);
  }
  expect_thrown<NotImplementedError>(AA_UNIMPLEMENTED);
  for (const aa_code code :
       {AA_CANCELLED, AA_UNKNOWN, AA_DEADLINE_EXCEEDED, AA_ABORTED, AA_INTERNAL, AA_DATA_LOSS, AA_DEVICE_LOST}) {
    expect_thrown<Error>(code);
  }
}

TEST(StatusFromException, KeepsCodes) {
  const StatusRef ours(status_of([] { throw Error("message", AA_DEVICE_LOST, 5); }));
  EXPECT_EQ(ours.text(), "DEVICE_LOST: message (vendor error 5)");
  EXPECT_EQ(StatusRef(status_of([] { throw OutOfMemoryError("x"); })).code(), AA_RESOURCE_EXHAUSTED);
  EXPECT_EQ(StatusRef(status_of([] { throw abi::Failure(AA_ABORTED, "x"); })).code(), AA_ABORTED);
  EXPECT_EQ(StatusRef(status_of([] { throw std::bad_alloc(); })).code(), AA_RESOURCE_EXHAUSTED);
  EXPECT_EQ(StatusRef(status_of([] { throw std::invalid_argument("x"); })).code(), AA_INVALID_ARGUMENT);
  EXPECT_EQ(StatusRef(status_of([] { throw std::logic_error("x"); })).code(), AA_INTERNAL);
  EXPECT_EQ(StatusRef(status_of([] { throw "text"; })).code(), AA_INTERNAL);
}

}  // namespace
}  // namespace anyaccel
