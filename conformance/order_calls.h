// What the cases of order call on streams and events, each with its check.
#pragma once

#include <string>

#include "conformance/context.h"

namespace anyaccel::conformance::order_calls {

inline constexpr size_t size = 70000;

inline bool done(const Context& c, aa_stream* stream) {
  int32_t answer = -1;
  c.ok(c.driver.stream_query(stream, &answer), "stream_query");
  c.expect(answer == 0 || answer == 1, "stream_query gave " + std::to_string(answer) + ", not 0 or 1");
  return answer == 1;
}

inline bool done(const Context& c, aa_event* event) {
  int32_t answer = -1;
  c.ok(c.driver.event_query(event, &answer), "event_query");
  c.expect(answer == 0 || answer == 1, "event_query gave " + std::to_string(answer) + ", not 0 or 1");
  return answer == 1;
}

inline void fill(const Context& c, aa_stream* stream, void* to, unsigned char value, size_t bytes = size) {
  c.ok_or_unsupported(c.driver.fill_async(stream, to, &value, 1, bytes), "fill_async");
}

inline void copy(const Context& c, aa_stream* stream, void* to, const void* from, size_t bytes = size) {
  c.ok(c.driver.copy_async(stream, to, from, bytes, AA_COPY_DEVICE_TO_DEVICE), "copy_async within the device");
}

inline void record(const Context& c, aa_event* event, aa_stream* stream) {
  c.ok(c.driver.event_record(event, stream), "event_record");
}

inline void wait(const Context& c, aa_stream* stream, aa_event* event) {
  c.ok(c.driver.stream_wait_event(stream, event), "stream_wait_event");
}

inline void synchronize(const Context& c, aa_stream* stream) {
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
}

inline void expect_all(const Context& c, const void* memory, unsigned char value, const std::string& what,
                       size_t bytes = size) {
  expect_equal(c.download(memory, bytes), Bytes(bytes, value), what);
}

}  // namespace anyaccel::conformance::order_calls
