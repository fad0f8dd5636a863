// Cases of copies and fills.
#include <algorithm>
#include <cstring>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace copy_group {
namespace {

constexpr size_t megabyte = size_t{1} << 20;

void copies_there_and_back(const Context& c) {
  // Small and odd ones, both sides of pages and of huge pages, several MiB.
  for (const size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{63}, size_t{64}, size_t{65}, size_t{255},
                            size_t{4095}, size_t{4096}, size_t{4097}, size_t{12289}, size_t{65535}, megabyte - 1,
                            megabyte, megabyte + 1, 2 * megabyte, 2 * megabyte + 4095, 5 * megabyte + 7}) {
    Memory memory(c, size);
    const Bytes data = pattern(size, static_cast<unsigned>(size));
    c.upload(memory.data(), data.data(), size);
    expect_equal(c.download(memory.data(), size), data, "a copy of " + std::to_string(size) + " bytes");
  }
}

void copies_within_the_device_of_any_size(const Context& c) {
  constexpr size_t room = 3 * megabyte;
  Memory source(c, room);
  Memory destination(c, room);
  const Bytes data = pattern(room, 30);
  Bytes expected = pattern(room, 31);
  c.upload(source.data(), data.data(), room);
  c.upload(destination.data(), expected.data(), room);
  size_t from = 1;
  size_t to = 2;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{3}, size_t{8}, size_t{4095}, size_t{4097}, size_t{65536}, megabyte + 5}) {
    c.ok(c.driver.copy_async(c.stream, destination.data() + to, source.data() + from, size, AA_COPY_DEVICE_TO_DEVICE),
         "copy_async within the device of " + std::to_string(size) + " bytes");
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(from), size,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    from += size + 13;
    to += size + 1;
  }
  c.synchronize();
  expect_equal(c.download(destination.data(), room), expected, "the destination of copies of many sizes");
  expect_equal(c.download(source.data(), room), data, "their source");
  // Within one allocation.
  c.ok(c.driver.copy_async(c.stream, source.data() + 2 * megabyte, source.data() + 11, megabyte - 100,
                           AA_COPY_DEVICE_TO_DEVICE),
       "copy_async within one allocation");
  c.synchronize();
  Bytes moved = data;
  std::copy_n(data.begin() + 11, megabyte - 100, moved.begin() + 2 * megabyte);
  expect_equal(c.download(source.data(), room), moved, "an allocation after a copy within it");
}

void host_side_at_any_offset(const Context& c) {
  // Pageable host memory at odd addresses and across page boundaries.
  constexpr size_t size = 9000;
  Memory memory(c, size);
  Bytes host = pattern(3 * size, 32);
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{4090}, size_t{8193}}) {
    c.upload(memory.data(), host.data() + offset, size);
    Bytes back = pattern(3 * size, 33);
    Bytes expected = back;
    std::copy_n(host.begin() + static_cast<std::ptrdiff_t>(offset), size,
                expected.begin() + static_cast<std::ptrdiff_t>(offset) + 3);
    c.download(back.data() + offset + 3, memory.data(), size);
    expect_equal(back, expected, "host memory around a copy to offset " + std::to_string(offset + 3));
  }
}

void copies_at_any_offset(const Context& c) {
  constexpr size_t size = 1024;
  Memory memory(c, size);
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, size_t{333}}) {
    for (const size_t length : {size_t{1}, size_t{2}, size_t{31}, size_t{500}}) {
      Bytes expected = pattern(size, 1);
      c.upload(memory.data(), expected.data(), size);
      const Bytes part = pattern(length, 2);
      c.upload(memory.data() + offset, part.data(), length);
      std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
      const std::string what = std::to_string(length) + " bytes at offset " + std::to_string(offset);
      expect_equal(c.download(memory.data(), size), expected, "around a copy of " + what);
      expect_equal(c.download(memory.data() + offset, length), part, "a copy back of " + what);
    }
  }
}

void copies_within_the_device(const Context& c) {
  constexpr size_t size = 10000;
  Memory source(c, size);
  Memory destination(c, size);
  const Bytes data = pattern(size, 3);
  Bytes expected = pattern(size, 4);
  c.upload(source.data(), data.data(), size);
  c.upload(destination.data(), expected.data(), size);
  c.ok(c.driver.copy_async(c.stream, destination.data() + 17, source.data() + 5, 9000, AA_COPY_DEVICE_TO_DEVICE),
       "copy_async within the device");
  c.synchronize();
  std::copy(data.begin() + 5, data.begin() + 9005, expected.begin() + 17);
  expect_equal(c.download(destination.data(), size), expected, "the destination");
  expect_equal(c.download(source.data(), size), data, "the source");
}

void copies_are_in_order(const Context& c) {
  constexpr size_t size = 100000;
  Memory first(c, size);
  Memory second(c, size);
  for (unsigned round = 0; round < 20; ++round) {
    const Bytes data = pattern(size, round);
    Bytes found(size);
    c.ok(c.driver.copy_async(c.stream, first.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
    c.ok(c.driver.copy_async(c.stream, second.data(), first.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
    c.ok(c.driver.copy_async(c.stream, found.data(), second.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.synchronize();
    expect_equal(found, data, "three copies enqueued one behind the other");
  }
}

void nothing_to_copy_is_fine(const Context& c) {
  Memory memory(c, 64);
  const Bytes data = pattern(64, 5);
  c.upload(memory.data(), data.data(), 64);
  unsigned char host = 1;
  c.ok(c.driver.copy_async(c.stream, memory.data(), &host, 0, AA_COPY_HOST_TO_DEVICE), "copy_async of 0 bytes");
  c.ok(c.driver.copy_async(c.stream, &host, memory.data(), 0, AA_COPY_DEVICE_TO_HOST), "copy_async of 0 bytes");
  for (const int32_t direction : {AA_COPY_HOST_TO_DEVICE, AA_COPY_DEVICE_TO_HOST, AA_COPY_DEVICE_TO_DEVICE}) {
    c.ok(c.driver.copy_async(c.stream, nullptr, nullptr, 0, direction), "copy_async of 0 bytes from null to null");
  }
  c.synchronize();
  expect_equal(c.download(memory.data(), 64), data, "memory after a copy of 0 bytes");
}

void unknown_direction_is_refused(const Context& c) {
  Memory memory(c, 64);
  Bytes data = pattern(64, 6);
  c.upload(memory.data(), data.data(), 64);
  const Bytes other = pattern(64, 7);
  c.error(c.driver.copy_async(c.stream, memory.data(), other.data(), 64, 99), {AA_INVALID_ARGUMENT},
          "copy_async with direction 99");
  expect_equal(c.download(memory.data(), 64), data, "memory after a refused copy");
}

void many_small_copies(const Context& c) {
  constexpr size_t count = 1000;
  Memory memory(c, count);
  const Bytes data = pattern(count, 8);
  for (size_t i = 0; i < count; ++i) {
    c.ok(c.driver.copy_async(c.stream, memory.data() + i, &data[i], 1, AA_COPY_HOST_TO_DEVICE), "copy_async");
  }
  c.synchronize();
  expect_equal(c.download(memory.data(), count), data, "a thousand copies of one byte");
}

// Fills part of a block and checks all of it; ends the case when the driver has no fills.
void check_fill(const Context& c, size_t pattern_size, size_t offset, size_t size,
                const Bytes& filling = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}) {
  constexpr size_t total = 5000;
  Memory memory(c, total);
  Bytes expected = pattern(total, 9);
  c.upload(memory.data(), expected.data(), total);
  const std::string what = "a fill of " + std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                           " with a pattern of " + std::to_string(pattern_size);
  aa_status* status = c.driver.fill_async(c.stream, memory.data() + offset, filling.data(), pattern_size, size);
  if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
    const std::string answer = c.host.status_message(&c.host, status);
    c.drop(status);
    c.synchronize();
    expect_equal(c.download(memory.data(), total), expected, "memory after an unimplemented fill");
    c.unsupported(what + ": " + answer);
  }
  c.ok(status, what);
  c.synchronize();
  for (size_t i = 0; i < size; ++i) expected[offset + i] = filling[i % pattern_size];
  expect_equal(c.download(memory.data(), total), expected, what);
}

void fills_with_every_pattern(const Context& c) {
  for (const size_t pattern_size : {size_t{1}, size_t{2}, size_t{4}, size_t{8}}) {
    check_fill(c, pattern_size, 0, pattern_size);
    check_fill(c, pattern_size, 8, 400 * pattern_size);
    check_fill(c, pattern_size, 3 * pattern_size, 101 * pattern_size);
    check_fill(c, pattern_size, 1, 40 * pattern_size);
    check_fill(c, pattern_size, 7, pattern_size);
  }
  // Drivers take patterns that repeat a shorter one for that one: these repeat four bytes, or one, but for a single byte.
  for (size_t i = 0; i < 8; ++i) {
    for (Bytes filling : {Bytes{1, 2, 3, 4, 1, 2, 3, 4}, Bytes(8, 5)}) {
      check_fill(c, 8, 16, 640, filling);
      filling[i] = 9;
      check_fill(c, 8, 16, 640, filling);
      check_fill(c, 4, 16, 640, filling);
    }
  }
  check_fill(c, 1, 1, 4999);
  check_fill(c, 1, 0, 0);
}

void fills_copy_their_pattern(const Context& c) {
  Memory memory(c, 4096);
  unsigned char filling[4] = {1, 2, 3, 4};
  c.ok_or_unsupported(c.driver.fill_async(c.stream, memory.data(), filling, 4, 4096), "fill_async");
  // Borrowed for the call only.
  std::memset(filling, 0xff, sizeof(filling));
  const Bytes found = c.download(memory.data(), 4096);
  for (size_t i = 0; i < found.size(); ++i) c.expect(found[i] == i % 4 + 1, "the pattern was read after the call");
}

void bad_patterns_are_refused(const Context& c) {
  Memory memory(c, 64);
  const unsigned char filling[16] = {};
  c.ok_or_unsupported(c.driver.fill_async(c.stream, memory.data(), filling, 1, 64), "fill_async");
  c.synchronize();
  for (const size_t pattern_size : {size_t{0}, size_t{3}, size_t{16}}) {
    c.error(c.driver.fill_async(c.stream, memory.data(), filling, pattern_size, 48), {AA_INVALID_ARGUMENT},
            "fill_async with a pattern of " + std::to_string(pattern_size) + " bytes");
  }
  c.error(c.driver.fill_async(c.stream, memory.data(), filling, 4, 30), {AA_INVALID_ARGUMENT},
          "fill_async of 30 bytes with a pattern of 4");
}

constexpr Case cases[] = {
    {"copies", "there_and_back", copies_there_and_back},
    {"copies", "at_any_offset", copies_at_any_offset},
    {"copies", "host_side_at_any_offset", host_side_at_any_offset},
    {"copies", "within_the_device", copies_within_the_device},
    {"copies", "within_the_device_of_any_size", copies_within_the_device_of_any_size},
    {"copies", "in_order", copies_are_in_order},
    {"copies", "nothing_to_copy_is_fine", nothing_to_copy_is_fine},
    {"copies", "unknown_direction_is_refused", unknown_direction_is_refused},
    {"copies", "many_small_ones", many_small_copies},
    {"fills", "every_pattern", fills_with_every_pattern},
    {"fills", "pattern_is_copied", fills_copy_their_pattern},
    {"fills", "bad_patterns_are_refused", bad_patterns_are_refused},
};

}  // namespace
}  // namespace copy_group

std::span<const Case> copy_cases() { return copy_group::cases; }

}  // namespace anyaccel::conformance
