// The trace layer: formats arguments and results of every call.
#include "runtime/layers/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/log.h"
#include "runtime/layers/layer_tables.h"
#include "runtime/layers/parameter_names.h"

namespace anyaccel::layers {
namespace {

// Null: standard error.
const char* output_path() {
  const char* path = std::getenv("ANYACCEL_TRACE_CALLS");
  return path && *path ? path : nullptr;
}

[[noreturn]] void refuse_output(const std::string& reason) {
  throw InvalidArgument(std::string("ANYACCEL_TRACE_CALLS: \"") + output_path() + "\" cannot be written (" + reason +
                        "); give a file in a folder that exists and that you may write to");
}

int open_output() {
  const char* path = output_path();
  if (!path) return STDERR_FILENO;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) refuse_output(std::strerror(errno));
  return file;
}

int output() {
  static const int file = open_output();
  return file;
}

std::atomic<bool> lost_lines{false};

void write_line(const std::string& line) {
  const int file = output();
  if (file != STDERR_FILENO && lost_lines.load(std::memory_order_relaxed)) return;
  const std::string reason = write_all(file, line.data(), line.size());
  if (reason.empty() || lost_lines.exchange(true)) return;
  log_error(std::string("ANYACCEL_TRACE_CALLS: \"") + (output_path() ? output_path() : "standard error") +
            "\" cannot be written any more: " + reason);
}

std::string hex(const void* pointer) {
  if (!pointer) return "null";
  char text[32];
  std::snprintf(text, sizeof(text), "%p", pointer);
  return text;
}

std::string quoted(const char* text) {
  constexpr size_t most = 80;
  if (!text) return "null";
  const size_t length = strnlen(text, most + 1);
  std::string result = "\"";
  for (const char c : std::string_view(text, length > most ? most : length)) {
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + (length > most ? "...\"" : "\"");
}

// Formats one argument. Pointers to results are shown as addresses here and as values after the call.
template <class T>
std::string argument(T value) {
  if constexpr (std::is_same_v<T, const char*>) {
    return quoted(value);
  } else if constexpr (std::is_same_v<T, const aa_op_call*>) {
    if (!value) return "null";
    return "{op " + std::to_string(value->op) + ", " + std::to_string(value->tensor_count) + " tensors}";
  } else if constexpr (std::is_same_v<T, const aa_copy*>) {
    if (!value) return "null";
    return "{destination " + hex(value->destination) + ", source " + hex(value->source) + ", size " +
           std::to_string(value->size) + ", direction " + std::to_string(value->direction) + "}";
  } else if constexpr (std::is_same_v<T, const aa_fill*>) {
    if (!value) return "null";
    return "{destination " + hex(value->destination) + ", size " + std::to_string(value->size) + ", pattern_size " +
           std::to_string(value->pattern_size) + "}";
  } else if constexpr (std::is_same_v<T, const aa_alloc*>) {
    if (!value) return "null";
    return "{kind " + std::to_string(value->kind) + ", size " + std::to_string(value->size) + "}";
  } else if constexpr (std::is_same_v<T, const aa_allocation*>) {
    if (!value) return "null";
    return "{kind " + std::to_string(value->kind) + ", pointer " + hex(value->pointer) + ", size " +
           std::to_string(value->size) + "}";
  } else if constexpr (std::is_same_v<T, const aa_device_open_params*>) {
    return value ? "{index " + std::to_string(value->index) + "}" : "null";
  } else if constexpr (std::is_same_v<T, const aa_stream_params*>) {
    if (!value) return "null";
    return "{priority " + std::to_string(value->priority) + ", flags " + std::to_string(value->flags) + "}";
  } else if constexpr (std::is_same_v<T, const aa_event_params*>) {
    return value ? "{flags " + std::to_string(value->flags) + "}" : "null";
  } else if constexpr (std::is_same_v<T, const aa_module_params*>) {
    if (!value) return "null";
    return "{size " + std::to_string(value->size) + ", format " + quoted(value->format) + "}";
  } else if constexpr (std::is_same_v<T, const aa_compile*>) {
    if (!value) return "null";
    return "{language " + quoted(value->language) + ", name " + quoted(value->name) + ", size " +
           std::to_string(value->source_size) + "}";
  } else if constexpr (std::is_same_v<T, const aa_launch*>) {
    if (!value) return "null";
    const auto triple = [](const uint32_t* v) {
      return std::to_string(v[0]) + "x" + std::to_string(v[1]) + "x" + std::to_string(v[2]);
    };
    return "{grid " + triple(value->grid) + ", block " + triple(value->block) + "}";
  } else if constexpr (std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>) {
    return value ? "function" : "null";
  } else if constexpr (std::is_pointer_v<T>) {
    return hex(value);
  } else {
    return std::to_string(value);
  }
}

// Formats the value that a successful call wrote through an out parameter; "" for other arguments.
template <class T>
std::string given(T value) {
  if constexpr (std::is_pointer_v<T> && !std::is_same_v<T, char*> && !std::is_same_v<T, const char* const*> &&
                !std::is_same_v<T, void*> && !std::is_same_v<T, const void*>) {
    using Target = std::remove_pointer_t<T>;
    if (!value) return "";
    if constexpr (std::is_same_v<Target, const char*>) {
      return quoted(*value);
    } else if constexpr (std::is_pointer_v<Target>) {
      return hex(*value);
    } else if constexpr (std::is_arithmetic_v<Target> && !std::is_const_v<Target>) {
      return std::to_string(*value);
    } else if constexpr (std::is_same_v<Target, aa_probe>) {
      return "state " + std::to_string(value->state) + ", " + std::to_string(value->device_count) + " devices";
    } else if constexpr (std::is_same_v<Target, aa_allocation>) {
      return hex(value->pointer);
    } else if constexpr (std::is_same_v<Target, aa_memory_info>) {
      return "kind " + std::to_string(value->kind) + " of device " + std::to_string(value->device_index) + ", " +
             hex(value->base) + " + " + std::to_string(value->size);
    } else if constexpr (std::is_same_v<Target, aa_compile_result>) {
      return value->succeeded ? "an image of " + std::to_string(value->image_size) + " bytes" : "compile error";
    }
  }
  return "";
}

// The line about one call. No templates, since there are calls of a hundred functions.
class CallLine {
 public:
  CallLine(const char* driver, std::string_view table, std::string_view function, std::string_view parameters)
      : parameters_(parameters) {
    line_ = "anyaccel: call [" + std::to_string(::syscall(SYS_gettid)) + "] " + driver + ".";
    if (!table.empty()) line_.append(table).append(".");
    line_.append(function).append("(");
  }

  void add_argument(const std::string& text) {
    bool may_be_null = false;
    line_.append(separator_).append(next_parameter(parameters_, may_be_null)).append("=").append(text);
    separator_ = ", ";
  }
  void begin_call() {
    line_ += ") = ";
    start_ = std::chrono::steady_clock::now();
  }
  void end_call(const StatusRef& status) {
    time_ = std::chrono::steady_clock::now() - start_;
    line_ += status.ok() ? "OK" : status.text();
    separator_ = " -> ";
  }
  // Does nothing for an empty text.
  void add_result(const std::string& text) {
    if (text.empty()) return;
    line_.append(separator_).append(text);
    separator_ = ", ";
  }
  void write() {
    char duration[48];
    std::snprintf(duration, sizeof(duration), ", %.1f us\n", time_.count());
    write_line(line_ + duration);
  }

 private:
  std::string line_;
  std::string_view parameters_;
  const char* separator_ = "";
  std::chrono::steady_clock::time_point start_;
  std::chrono::duration<double, std::micro> time_{};
};

struct Trace {
  struct State {};

  template <auto Member, class... Args>
  static aa_status* call(LayerState<Trace>& layer, Args... args) {
    CallLine line(layer.below.driver->name, table_name<TableOf<Member>>, member_name<Member>, parameter_names<Member>);
    (line.add_argument(argument(args)), ...);
    line.begin_call();
    StatusRef status(forward<Member>(layer, args...));
    line.end_call(status);
    if (status.ok()) (line.add_result(given(args)), ...);
    line.write();
    return status.release();
  }

 private:
  template <auto Member, class... Args>
  static aa_status* forward(LayerState<Trace>& layer, Args... args) {
    if constexpr (std::is_same_v<decltype(Member), decltype(&aa_driver::query_extension)>) {
      if constexpr (Member == &aa_driver::query_extension) return layer.find_extension(args...);
    }
    return layer.next<Member>(args...);
  }
};

}  // namespace

const abi::DriverCalls* wrap_trace(const abi::DriverCalls* table) {
  output();
  return wrap<Trace>(table);
}

void check_trace_calls_file() {
  const std::string reason = output_path() ? output_file_problem(output_path()) : "";
  if (!reason.empty()) refuse_output(reason);
}

bool all_calls_traced() noexcept { return !lost_lines.load(); }

}  // namespace anyaccel::layers
