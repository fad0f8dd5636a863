// A profiler's library for tests: it puts its functions into NVTX's tables and writes down what they are called with. It
// uses none of the product's declarations, so that both sides would have to be wrong alike; nvtx_test.cpp also runs NVTX's
// own client against it where that is installed.
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Event {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};

std::mutex mutex;
std::string text;
std::vector<std::string> domains;

void line(const std::string& words) {
  const std::lock_guard<std::mutex> lock(mutex);
  text += words + "\n";
}

std::string name_of(void* domain) {
  const auto number = reinterpret_cast<uintptr_t>(domain);
  return number >= 1 && number <= domains.size() ? domains[number - 1] : "?";
}

std::string words_of(const Event* event) {
  return std::string(event->message_type == 1 ? event->message : "?") + " version " + std::to_string(event->version) +
         " size " + std::to_string(event->size) + " category " + std::to_string(event->category);
}

void mark(const Event* event) { line("mark " + words_of(event)); }
int push(const Event* event) {
  line("push " + words_of(event));
  return 0;
}
int pop() {
  line("pop");
  return 0;
}
void name_category(uint32_t category, const char* name) {
  line("category " + std::to_string(category) + " is " + name);
}
void* domain_create(const char* name) {
  line(std::string("domain ") + name);
  domains.emplace_back(name);
  return reinterpret_cast<void*>(domains.size());
}
void domain_mark(void* domain, const Event* event) { line("mark in " + name_of(domain) + ": " + words_of(event)); }
int domain_push(void* domain, const Event* event) {
  line("push in " + name_of(domain) + ": " + words_of(event));
  return 0;
}
int domain_pop(void* domain) {
  line("pop in " + name_of(domain));
  return 0;
}
void domain_name_category(void* domain, uint32_t category, const char* name) {
  line("category " + std::to_string(category) + " of " + name_of(domain) + " is " + name);
}

using Function = void (*)();
struct Callbacks {
  size_t struct_size;
  int (*get)(int module, Function*** table, unsigned* size);
};
struct Version {
  size_t struct_size;
  uint32_t version, reserved;
  void (*set)(uint32_t);
};

template <class Signature>
void set(Function** table, unsigned place, Signature* function) {
  *table[place] = reinterpret_cast<Function>(function);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* nvtx_recorder_text() { return text.c_str(); }

// FAKE_NVTX=fail: the profiler does not want to start. FAKE_NVTX=ranges: it asks for ranges of domains only.
EXPORT int InitializeInjectionNvtx2(const void* (*get_export_table)(uint32_t)) {
  const char* value = std::getenv("FAKE_NVTX");
  const std::string mode = value ? value : "";
  if (mode == "fail") return 0;
  const auto* callbacks = static_cast<const Callbacks*>(get_export_table(1));
  const auto* version = static_cast<const Version*>(get_export_table(3));
  if (!callbacks || callbacks->struct_size < sizeof(Callbacks) || !version || version->version != 3) return 0;
  version->set(3);
  // Profilers take every module that they know.
  for (int module = 1; module <= 6; ++module) {
    constexpr unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
    Function** table = nullptr;
    unsigned size = 0;
    if (callbacks->get(module, &table, &size) != 1 || !table || size != sizes[module]) return 0;
    for (unsigned place = 1; place < size; ++place) {
      if (!table[place]) return 0;
    }
    if (module == 1 && mode.empty()) {
      set(table, 1, mark);
      set(table, 8, push);
      set(table, 11, pop);
      set(table, 12, name_category);
    }
    if (module == 5) {
      set(table, 4, domain_push);
      set(table, 5, domain_pop);
      if (!mode.empty()) continue;
      set(table, 1, domain_mark);
      set(table, 8, domain_name_category);
      set(table, 12, domain_create);
    }
  }
  Function** table = nullptr;
  unsigned size = 0;
  if (callbacks->get(7, &table, &size) != 0 || callbacks->get(0, &table, &size) != 0 || get_export_table(99)) return 0;
  return 1;
}
