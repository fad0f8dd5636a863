// Kernels compiled for the host: their pointer arguments, the table of kernels by name, and running one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "simulators/engine/fiber.h"

namespace sim {

// The allocation behind one pointer argument of one launch, and which of its bytes were touched.
struct ArgumentMemory {
  const char* pointer = nullptr;  // what the program passed, as the engine sees it; null: none was passed
  const char* begin = nullptr;    // bounds of the allocation, as the engine sees it
  const char* end = nullptr;
  const char* read_begin = nullptr;  // hull of the bytes read; equal: none
  const char* read_end = nullptr;
  const char* write_begin = nullptr;
  const char* write_end = nullptr;
  // For a launch that overlaps the previous kernel: the memory that items accessed before they waited for it. These are
  // in the hulls above too.
  const char* early_read_begin = nullptr;
  const char* early_read_end = nullptr;
  const char* early_write_begin = nullptr;
  const char* early_write_end = nullptr;
  bool overlaps_previous = false;
  const char* bad = nullptr;  // first address outside of the bounds, or not aligned for its type
  std::size_t bad_bytes = 0;

  // Records a bad access; the kernel continues with this scratch memory instead.
  void* refuse(const char* address, std::size_t bytes);

  template <bool kWrite>
  const char* touch(const char* address, std::size_t bytes, std::size_t alignment) {
    if (address < begin || address + bytes > end || reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
      return static_cast<const char*>(refuse(address, bytes));
    }
    widen(kWrite ? write_begin : read_begin, kWrite ? write_end : read_end, address, bytes);
    if (overlaps_previous && !GroupRunner::current().waited()) {
      widen(kWrite ? early_write_begin : early_read_begin, kWrite ? early_write_end : early_read_end, address, bytes);
    }
    return address;
  }

 private:
  static void widen(const char*& first, const char*& last, const char* address, std::size_t bytes) {
    if (first == last) {
      first = address;
      last = address + bytes;
    } else {
      if (address < first) first = address;
      if (address + bytes > last) last = address + bytes;
    }
  }
};

// A pointer to global memory in a kernel. Reads go through In, everything through Out (an access by Out counts as a
// write).
template <typename T, bool kWrite>
class GlobalPointer {
 public:
  using Element = std::conditional_t<kWrite, T, const T>;

  GlobalPointer() = default;
  GlobalPointer(std::nullptr_t) {}  // NOLINT: a null pointer, as in C
  GlobalPointer(const char* at, ArgumentMemory* memory) : at_(at), memory_(memory) {}
  // The implicit conversions of C: to void, and from AA_OUT to AA_IN.
  template <typename U, bool kOther,
            typename = std::enable_if_t<(std::is_same_v<T, U> || std::is_void_v<T>)&&(kOther || !kWrite)>>
  GlobalPointer(const GlobalPointer<U, kOther>& other) : at_(other.at()), memory_(other.memory()) {}  // NOLINT

  template <typename U = T>
  std::add_lvalue_reference_t<std::conditional_t<kWrite, U, const U>> operator[](std::int64_t i) const {
    // Unsigned: an index far out of range must not be undefined behaviour before it is reported.
    const auto at = reinterpret_cast<std::uintptr_t>(at_) + static_cast<std::uintptr_t>(i) * sizeof(U);
    if (memory_ == nullptr) memory_ = null_memory();
    const char* address = memory_->template touch<kWrite>(reinterpret_cast<const char*>(at), sizeof(U), alignof(U));
    return *reinterpret_cast<Element*>(const_cast<char*>(address));
  }
  // Any bytes behind it, for accesses wider than an element.
  char* touch(std::int64_t offset, std::size_t bytes, std::size_t alignment) const {
    const auto at = reinterpret_cast<std::uintptr_t>(at_) + static_cast<std::uintptr_t>(offset);
    if (memory_ == nullptr) memory_ = null_memory();
    return const_cast<char*>(memory_->template touch<kWrite>(reinterpret_cast<const char*>(at), bytes, alignment));
  }
  template <typename U = T>
  GlobalPointer operator+(std::int64_t n) const {
    if (at_ == nullptr) return {};
    const auto at = reinterpret_cast<std::uintptr_t>(at_) + static_cast<std::uintptr_t>(n) * sizeof(U);
    return GlobalPointer(reinterpret_cast<const char*>(at), memory_);
  }
  GlobalPointer operator-(std::int64_t n) const { return *this + -n; }
  GlobalPointer& operator+=(std::int64_t n) { return *this = *this + n; }
  explicit operator bool() const { return at_ != nullptr; }
  friend bool operator==(const GlobalPointer& a, const GlobalPointer& b) { return a.at_ == b.at_; }

  const char* at() const { return at_; }
  ArgumentMemory* memory() const { return memory_; }

 private:
  static ArgumentMemory* null_memory();

  const char* at_ = nullptr;
  mutable ArgumentMemory* memory_ = nullptr;
};

// Position and sizes of the running launch's items.
struct LaunchState {
  std::int64_t group[3] = {0, 0, 0};
  std::int64_t groups[3] = {1, 1, 1};
  ArgumentMemory* null_memory = nullptr;  // takes the blame for accesses through null pointers
};
LaunchState& launch_state();  // of this thread

template <typename T, bool kWrite>
ArgumentMemory* GlobalPointer<T, kWrite>::null_memory() {
  return launch_state().null_memory;
}

struct ParameterInfo {
  std::size_t size;
  bool pointer;
};

// The loop over a grid, which calls item(arguments) for each item.
class ItemLoop {
 public:
  virtual void run(void (*item)(const void* arguments), const void* arguments) = 0;

 protected:
  ~ItemLoop() = default;
};

// Unpacks the arguments of `kernel` once and gives the loop a function that executes one item.
// values[i]: parameters[i].size bytes; memory[i]: of pointer i.
using WithItem = void (*)(void (*kernel)(), const void* const* values, ArgumentMemory* memory, ItemLoop& loop);

struct KernelInfo {
  std::string name;
  int group_size = 0;  // of a tuned kernel: the most
  // Tuned kernels come with their own width of sub-groups (a launch says it for the others), run in any number of whole
  // sub-groups and may have local memory sized by the launch.
  int own_subgroup = 0;
  std::vector<ParameterInfo> parameters;
  void (*kernel)() = nullptr;  // of another type, which with_item knows
  WithItem with_item = nullptr;
};

// All kernels linked into this program, by name. Filled before main().
std::map<std::string, KernelInfo>& kernel_table();

struct LaunchProblem {
  std::string kind, message;  // as for a violation; both empty: none
};

struct LaunchShape {
  std::uint32_t groups[3] = {1, 1, 1};
  int group_size = 0;        // 0: the kernel's
  int subgroup = kSubgroup;  // of kernels without an own one
  bool backwards = false;    // items and groups run in reverse
  std::size_t dynamic_local = 0;
  std::size_t static_limit = kLocalBytes, local_limit = kLocalBytes;  // as in GroupShape
  bool overlaps_previous = false;
};
// Functions of devices with tuned kernels.
inline constexpr std::size_t kTunedStaticLocalBytes = 48 * 1024;
inline constexpr std::size_t kTunedLocalBytes = kMostLocalBytes;

// Runs all groups of a grid on this thread. memory[i] holds the bounds of pointer i before and its hulls afterwards.
LaunchProblem run_kernel(const KernelInfo& kernel, const void* const* values, std::vector<ArgumentMemory>& memory,
                         const LaunchShape& shape);
inline LaunchProblem run_kernel(const KernelInfo& kernel, const void* const* values,
                                std::vector<ArgumentMemory>& memory, const std::uint32_t groups[3], int subgroup,
                                bool backwards) {
  LaunchShape shape;
  for (int d = 0; d < 3; ++d) shape.groups[d] = groups[d];
  shape.subgroup = subgroup;
  shape.backwards = backwards;
  return run_kernel(kernel, values, memory, shape);
}

namespace detail {

template <typename T>
struct Parameter {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr ParameterInfo kInfo = {sizeof(T), false};
  static T unpack(const void* value, ArgumentMemory*) {
    T result;
    std::memcpy(&result, value, sizeof(T));
    return result;
  }
};

template <typename T, bool kWrite>
struct Parameter<GlobalPointer<T, kWrite>> {
  static constexpr ParameterInfo kInfo = {sizeof(void*), true};
  static GlobalPointer<T, kWrite> unpack(const void*, ArgumentMemory* memory) { return {memory->pointer, memory}; }
};

template <typename... Args, std::size_t... kIndex>
void with_item(void (*kernel)(), const void* const* values, ArgumentMemory* memory, ItemLoop& loop,
               std::index_sequence<kIndex...>) {
  const auto item = [function = reinterpret_cast<void (*)(Args...)>(kernel),
                     ... arguments = Parameter<std::remove_cv_t<Args>>::unpack(values[kIndex], &memory[kIndex])] {
    function(arguments...);
  };
  loop.run([](const void* arguments) { (*static_cast<const decltype(item)*>(arguments))(); }, &item);
}

template <typename... Args>
void with_item(void (*kernel)(), const void* const* values, ArgumentMemory* memory, ItemLoop& loop) {
  with_item<Args...>(kernel, values, memory, loop, std::index_sequence_for<Args...>{});
}

}  // namespace detail

// Adds a kernel to the table. Hundreds of files register kernels: what the compiler makes of each is kept small, without
// the standard library's containers and functions.
struct KernelRegistration {
  template <typename... Args>
  KernelRegistration(const char* name, int group_size, void (*kernel)(Args...), int own_subgroup = 0) {
    static constexpr ParameterInfo kParameters[] = {detail::Parameter<std::remove_cv_t<Args>>::kInfo..., {}};
    add(name, group_size, own_subgroup, kParameters, sizeof...(Args), reinterpret_cast<void (*)()>(kernel),
        &detail::with_item<Args...>);
  }

 private:
  static void add(const char* name, int group_size, int own_subgroup, const ParameterInfo* parameters,
                  std::size_t parameter_count, void (*kernel)(), WithItem with_item);
};

}  // namespace sim
