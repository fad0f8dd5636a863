// Implements library.h: one adaptor for libraries of collectives with the common interface.
#include "accelerators/collective_library/library.h"

#include <dlfcn.h>

#include <type_traits>

namespace anyaccel::collectives {

std::unique_ptr<Library> Library::bind(const LibraryTable& table, void* handle, std::string& problem) {
  std::unique_ptr<Library> library(new Library(table));
  std::string missing;
  const auto bind = [&](auto& function, const char* symbol, bool needed = false) {
    if (symbol) function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (needed && !function) missing += (missing.empty() ? "" : ", ") + std::string(symbol ? symbol : "(no name)");
  };
  const LibraryNames& names = table.names;
  bind(library->id_create_, names.id_create, true);
  bind(library->join_, names.join, true);
  bind(library->destroy_, names.destroy, true);
  bind(library->all_reduce_, names.all_reduce, true);
  bind(library->error_text_, names.error_text);
  bind(library->last_error_, names.last_error);
  bind(library->abort_, names.abort);
  bind(library->async_error_, names.async_error);
  bind(library->group_begin_, names.group_begin);
  bind(library->group_end_, names.group_end);
  bind(library->reduce_, names.reduce);
  bind(library->broadcast_, names.broadcast);
  bind(library->all_gather_, names.all_gather);
  bind(library->reduce_scatter_, names.reduce_scatter);
  bind(library->send_, names.send);
  bind(library->recv_, names.recv);
  if (!missing.empty()) {
    problem = std::string(table.name) + " lacks " + missing;
    return nullptr;
  }
  Result (*get_version)(int* version) = nullptr;
  bind(get_version, names.version);
  int version = 0;
  if (get_version && table.version_text && get_version(&version) == table.success) {
    library->version_ = table.version_text(version);
  }
  return library;
}

void Library::fail(Result result, const char* function, Comm comm) const {
  aa_code code = AA_UNKNOWN;
  for (const ResultCode& known : table_.results) {
    if (known.result == result) code = known.code;
  }
  std::string text = std::string(function) + " gave " + std::to_string(result);
  if (const char* words = error_text_ ? error_text_(result) : nullptr) text += ": " + std::string(words);
  if (const char* more = last_error_ ? last_error_(comm) : nullptr; more && *more) text += "; " + std::string(more);
  throw abi::Failure(code, text, result);
}

void Library::lacks(const std::string& what) const {
  throw abi::Failure(AA_UNIMPLEMENTED,
                     std::string(table_.name) + (version_.empty() ? "" : " " + version_) + " has no " + what);
}

int Library::type_of(int32_t dtype) const {
  const auto index = static_cast<size_t>(dtype);
  if (dtype < 0 || index >= table_.types.size() || table_.types[index] == absent) [[unlikely]]
    lacks("reductions of the element type " + std::to_string(dtype));
  return table_.types[index];
}

int Library::operation_of(int32_t operation) const {
  const auto index = static_cast<size_t>(operation);
  if (operation < 0 || index >= table_.operations.size() || table_.operations[index] == absent) [[unlikely]]
    lacks("reduction with the number " + std::to_string(operation));
  return table_.operations[index];
}

void Library::admit(const void* id) const {
  if (!table_.one_member_per_process) return;
  const std::lock_guard lock(mutex_);
  if (used_ids_.emplace(static_cast<const char*>(id), table_.id_bytes).second) return;
  throw abi::Failure(AA_UNIMPLEMENTED,
                     std::string(table_.name) +
                         " lets a process have one member of a communicator, and this process has joined this one: "
                         "give each device a process of its own (`anyaccel launch` starts them)");
}

void Library::id_create(void* id) const { check(id_create_(id), table_.names.id_create); }

void Library::group_begin() const {
  if (!group_begin_ || !group_end_) lacks("groups of calls");
  check(group_begin_(), table_.names.group_begin);
}

void Library::group_end() const {
  if (!group_begin_ || !group_end_) lacks("groups of calls");
  check(group_end_(), table_.names.group_end);
}

}  // namespace anyaccel::collectives
