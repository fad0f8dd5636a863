// The validate layer: checks of parameters that follow from their types, around the rules of each function.
#include "runtime/layers/validate.h"

#include <type_traits>

#include "anyaccel/log.h"
#include "runtime/layers/validate_rules.h"
#include "runtime/layers/validate_threads.h"

namespace anyaccel::layers {
namespace {

template <class T>
constexpr bool is_handle = false;
template <>
constexpr bool is_handle<aa_instance*> = true;
template <>
constexpr bool is_handle<aa_device*> = true;
template <>
constexpr bool is_handle<aa_stream*> = true;
template <>
constexpr bool is_handle<aa_event*> = true;
template <>
constexpr bool is_handle<aa_module*> = true;
template <>
constexpr bool is_handle<aa_kernel*> = true;
template <>
constexpr bool is_handle<aa_graph*> = true;
template <>
constexpr bool is_handle<aa_comm*> = true;
template <>
constexpr bool is_handle<aa_packed*> = true;
template <>
constexpr bool is_handle<aa_file*> = true;

template <class T>
concept SizedStruct = std::is_pointer_v<T> && requires(T pointer) {
  pointer->struct_size;
};

// These check an argument unless a problem was found before. They are no templates, since the tables have hundreds of
// arguments. `names` are those of the remaining parameters.

void check_handle(Problem& problem, ValidateState& state, std::string_view& names, ObjectKind kind, const void* value) {
  if (problem) return;
  bool may_be_null = false;
  const std::string name(next_parameter(names, may_be_null));
  if (!value) {
    problem = wrong(name + " is null");
  } else if (!state.find(kind, value)) {
    problem = wrong(name +
                    (state.was_destroyed(kind, value) ? " was destroyed before: it is not a living "
                                                      : " was not made by this driver as a ") +
                    kind_name(kind));
  }
}

// `struct_size`: of the structure that it points to; null if that has none.
void check_pointer(Problem& problem, std::string_view& names, const void* value, const uint32_t* struct_size) {
  if (problem) return;
  bool may_be_null = false;
  const std::string_view name = next_parameter(names, may_be_null);
  if (!value) {
    if (!may_be_null) problem = wrong(std::string(name) + " is null");
  } else if (struct_size && *struct_size <= sizeof(uint32_t)) {
    problem = wrong(std::string(name) + "->struct_size is " + std::to_string(*struct_size) + ": it was not set");
  }
}

void skip_name(std::string_view& names) {
  bool may_be_null = false;
  next_parameter(names, may_be_null);
}

template <class T>
void check_argument(Problem& problem, ValidateState& state, std::string_view& names, T value) {
  if constexpr (is_handle<T>) {
    check_handle(problem, state, names, kind_of(value), value);
  } else if constexpr (SizedStruct<T>) {
    check_pointer(problem, names, value, value ? &value->struct_size : nullptr);
  } else if constexpr (std::is_pointer_v<T>) {
    check_pointer(problem, names, reinterpret_cast<const void*>(value), nullptr);
  } else {
    skip_name(names);
  }
}

// Visits the handles among the arguments in order; `first` is true for the first one.
template <auto Member, class T>
Problem check_thread(ValidateState& state, bool& first, T value) {
  if constexpr (is_handle<T>) {
    const bool is_first = first;
    first = false;
    if (is_first && alone<Member> != Alone::never) {
      if (Problem problem = check_alone(state, alone<Member>, kind_of(value), value)) return problem;
    }
    if constexpr (enqueues<Member> && std::is_same_v<T, aa_stream*>) return check_stream_thread(state, value);
  }
  return {};
}

template <auto Member, class T>
void enter_call(Inside& inside, bool& first, T value) {
  if constexpr (is_handle<T>) {
    inside.enter(kind_of(value), value, first && alone<Member> != Alone::never);
    first = false;
  }
}

aa_status* refuse(const aa_driver* driver, const char* table, const char* function, const Problem& problem) {
  const std::string dot = *table ? "." : "";
  const std::string message = "validate: " + (table + dot) + function + ": " + problem.rule;
  log_error(std::string(driver->name) + ": " + message);
  return make_status(problem.code, message);
}

}  // namespace

template <auto Member, class... Args>
aa_status* Validate::call(LayerState<Validate>& layer, Args... args) {
  Problem problem;
  Inside inside(layer.state);
  if (inside_host_call) problem = wrong_now("called from inside a stream_host_call function");
  if (!problem) {
    std::lock_guard lock(layer.state.mutex);
    std::string_view names = parameter_names<Member>;
    (void)names;
    (check_argument(problem, layer.state, names, args), ...);
    bool first = true;
    ((problem ? void() : void(problem = check_thread<Member>(layer.state, first, args))), ...);
    if (!problem) problem = before(Function<Member>{}, layer.state, args...);
    // An object that is about to be destroyed has been removed from the state already, and is not counted.
    first = true;
    if (!problem) (enter_call<Member>(inside, first, args), ...);
  }
  if (!problem) problem = ask(Function<Member>{}, layer, args...);
  if (problem) return refuse(layer.below.driver, table_name<TableOf<Member>>, member_name<Member>, problem);
  aa_status* status = forward(Function<Member>{}, layer, args...);
  after(Function<Member>{}, layer, status == nullptr, args...);
  return status;
}

const abi::DriverCalls* wrap_validate(const abi::DriverCalls* table) { return wrap<Validate>(table); }

}  // namespace anyaccel::layers
