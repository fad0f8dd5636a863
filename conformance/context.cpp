// Expectations and objects of the conformance suite.
#include "conformance/context.h"

#include <algorithm>
#include <cstring>

namespace anyaccel::conformance {
namespace {

const char* code_text(int32_t code) {
  static constexpr const char* names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "DEVICE_LOST",    "INCOMPATIBLE"};
  return code >= 0 && code <= AA_INCOMPATIBLE ? names[code] : "an unknown code";
}

}  // namespace

std::string Context::describe(aa_status* status) const {
  if (!status) return "success";
  std::string text = code_text(host.status_code(&host, status));
  text += std::string(" (") + host.status_message(&host, status) + ")";
  host.status_release(&host, status);
  return text;
}

void Context::expect(bool condition, const std::string& what) const {
  if (!condition) throw Failed{what};
}

void Context::ok(aa_status* status, const std::string& what) const {
  if (!status) return;
  const bool unavailable = host.status_code(&host, status) == AA_UNAVAILABLE;
  const std::string text = what + ": " + describe(status);
  if (unavailable) throw Unavailable{text};
  throw Failed{text};
}

void Context::ok_or_unsupported(aa_status* status, const std::string& what) const {
  if (status && host.status_code(&host, status) == AA_UNIMPLEMENTED) {
    drop(status);
    throw Unsupported{what + " is not implemented"};
  }
  ok(status, what);
}

void Context::error(aa_status* status, std::initializer_list<aa_code> codes, const std::string& what) const {
  bool right = false;
  std::string wanted;
  for (const aa_code code : codes) {
    right = right || (status && host.status_code(&host, status) == code);
    wanted += std::string(wanted.empty() ? "" : " or ") + code_text(code);
  }
  if (!right) throw Failed{what + " must be " + wanted + ", but gave " + describe(status)};
  any_error(status, what);
}

void Context::any_error(aa_status* status, const std::string& what) const {
  if (!status) throw Failed{what + " must be an error, but succeeded"};
  const bool has_message = *host.status_message(&host, status) != '\0';
  drop(status);
  if (!has_message) throw Failed{what + ": the error has no message"};
}

bool Context::drop(aa_status* status) const noexcept {
  host.status_release(&host, status);
  return status == nullptr;
}

void Context::upload(void* destination, const void* source, size_t size) const {
  ok(driver.copy_async(stream, destination, source, size, AA_COPY_HOST_TO_DEVICE), "copy_async to the device");
  synchronize();
}

void Context::download(void* destination, const void* source, size_t size) const {
  ok(driver.copy_async(stream, destination, source, size, AA_COPY_DEVICE_TO_HOST), "copy_async to the host");
  synchronize();
}

Bytes Context::download(const void* source, size_t size) const {
  Bytes bytes(size);
  download(bytes.data(), source, size);
  return bytes;
}

const void* Context::find_extension(const char* name, uint32_t version) const {
  const void* const untouched = this;
  const void* table = untouched;
  aa_status* status = driver.query_extension(instance, name, version, &table);
  if (status) expect(table == untouched, std::string("query_extension of \"") + name + "\" failed but wrote a table");
  ok_or_unsupported(status, std::string("extension \"") + name + "\"");
  expect(table != nullptr && table != untouched,
         std::string("query_extension of \"") + name + "\" succeeded but gave a null table");
  return table;
}

Bytes pattern(size_t size, unsigned seed) {
  Bytes bytes(size);
  uint64_t value = seed * 2654435761u + 12345u;
  for (size_t i = 0; i < size; i += sizeof(value)) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = value ^ (value >> 29);  // the low bits of such a sequence are poor
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return bytes;
}

void expect_equal(std::span<const unsigned char> found, std::span<const unsigned char> expected,
                  const std::string& what) {
  if (found.size() != expected.size()) throw Failed{what + ": sizes differ"};
  if (found.empty() || std::memcmp(found.data(), expected.data(), found.size()) == 0) return;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    throw Failed{what + ": byte " + std::to_string(i) + " of " + std::to_string(found.size()) + " is " +
                 std::to_string(found[i]) + " and must be " + std::to_string(expected[i])};
  }
}

Memory::Memory(const Context& context, size_t size, int32_t kind) : context_(context), size_(size), kind_(kind) {
  context.ok(context.driver.mem_alloc(context.device, kind, size, &pointer_),
             "mem_alloc of " + std::to_string(size) + " bytes");
  if (!pointer_) throw Failed{"mem_alloc succeeded but gave a null pointer"};
}

void Memory::free() {
  if (!pointer_) return;
  context_.drop(context_.driver.mem_free(context_.device, kind_, pointer_, size_));
  pointer_ = nullptr;
}

Stream::Stream(const Context& context, int32_t priority, uint32_t flags) : context_(context) {
  context.ok(context.driver.stream_create(context.device, priority, flags, &stream_), "stream_create");
  if (!stream_) throw Failed{"stream_create succeeded but gave a null stream"};
}

void Stream::destroy() {
  if (stream_) context_.drop(context_.driver.stream_destroy(stream_));
  stream_ = nullptr;
}

Event::Event(const Context& context, uint32_t flags) : context_(context) {
  aa_status* status = context.driver.event_create(context.device, flags, &event_);
  if (status && event_) {
    event_ = nullptr;
    context.drop(status);
    throw Failed{"event_create failed but wrote an event"};
  }
  context.ok_or_unsupported(status, "event_create");
  if (!event_) throw Failed{"event_create succeeded but gave a null event"};
}

void Event::destroy() {
  if (event_) context_.drop(context_.driver.event_destroy(event_));
  event_ = nullptr;
}

}  // namespace anyaccel::conformance
