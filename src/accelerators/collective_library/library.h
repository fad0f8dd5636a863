// Adapts libraries of collectives whose interface is like the one that most vendors copied: one adaptor serves all of
// them.
//
// They share their functions (get an id, join with it, collectives of send, receive, count, type, operation,
// communicator, stream), and differ in names, in the size of an id and how it is handed over, in the numbers of types,
// operations and errors, and in what they leave out. A LibraryTable holds these differences. To give a new accelerator
// its library:
//
//   - write a LibraryTable in the accelerator's folder, from the vendor's documentation;
//   - open the library as the accelerator opens its others, and give the handle to Library::bind();
//   - offer collectives_extension: its Driver's collectives_* functions call the Library's, and its Device's comm_create
//     makes a LibraryCommunicator, with a DeviceBinding that makes the device current where the vendor wants that.
//
// Nothing here names a vendor; functions are looked up in the one handle, since two libraries may export the same names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::collectives {

// The signature of the function by which a member joins. Ranks and sizes are int, or unsigned of the same width.
enum class JoinCall {
  id_by_value,    // (comm*, int size, id, int rank): id as a struct of id_bytes
  id_by_pointer,  // (uint32 size, const id*, uint32 rank, comm*)
  lists,          // (comm*, int count, const int* devices, const int* ranks, int size, const id*)
};

enum class BroadcastCall {
  two_buffers,  // (send, recv, count, type, root, comm, stream)
  in_place,     // (buffer, count, type, root, comm, stream)
};

enum class AsyncErrorCall {
  through_pointer,  // int (comm, int* error)
  as_result,        // int (comm)
};

// The names of the functions; null if the library has no such function. Those up to all_reduce are required.
struct LibraryNames {
  const char* id_create;
  const char* join;
  const char* destroy;
  const char* all_reduce;
  const char* version = nullptr;     // int (int* version)
  const char* error_text = nullptr;  // const char* (int result)
  const char* last_error = nullptr;  // const char* (comm): details in addition to error_text
  const char* abort = nullptr;
  const char* async_error = nullptr;
  const char* group_begin = nullptr;
  const char* group_end = nullptr;
  const char* reduce = nullptr;
  const char* broadcast = nullptr;
  const char* all_gather = nullptr;
  const char* reduce_scatter = nullptr;
  const char* send = nullptr;
  const char* recv = nullptr;
};

struct ResultCode {
  int result;
  aa_code code;
};

// Stands for a type or operation that the library does not have.
inline constexpr int16_t absent = -1;

struct LibraryTable {
  const char* name;  // what the vendor calls it
  LibraryNames names;
  size_t id_bytes;
  JoinCall join = JoinCall::id_by_value;
  BroadcastCall broadcast = BroadcastCall::two_buffers;
  AsyncErrorCall async_error = AsyncErrorCall::through_pointer;
  bool one_member_per_process = false;  // an id can be used only once in a process
  // The library's numbers, indexed by aa_dtype and by aa_reduce_op. `carried` is the number of a one-byte type by which
  // any data can be transferred.
  std::array<int16_t, AA_DTYPE_F8_E5M2 + 1> types;
  std::array<int16_t, AA_REDUCE_AVG + 1> operations;
  int16_t carried;
  int success = 0;
  int in_progress = 0;  // a result of async_error that is not an error either; equal to success if there is none
  std::span<const ResultCode> results = {};
  // Formats the result of `version` as "2.28.9".
  std::string (*version_text)(int version) = nullptr;
};

// An opened library. Lives as long as its communicators.
class Library {
 public:
  // `handle` is from dlopen. Returns null if required functions are missing; `problem` then names them. `table` is kept
  // by reference.
  static std::unique_ptr<Library> bind(const LibraryTable& table, void* handle, std::string& problem);

  const char* name() const noexcept { return table_.name; }
  const std::string& version() const noexcept { return version_; }
  size_t id_size() const noexcept { return table_.id_bytes; }

  // Each throws abi::Failure: AA_UNIMPLEMENTED where the library lacks the function.
  void id_create(void* id) const;
  void group_begin() const;
  void group_end() const;

 private:
  friend class LibraryCommunicator;
  using Result = int;
  using Comm = void*;
  using NativeStream = void*;

  explicit Library(const LibraryTable& table) : table_(table) {}
  // Throws for every result except success.
  void check(Result result, const char* function, Comm comm = nullptr) const {
    if (result != table_.success) [[unlikely]]
      fail(result, function, comm);
  }
  [[noreturn]] void fail(Result result, const char* function, Comm comm) const;
  [[noreturn]] void lacks(const std::string& what) const;
  // Return the library's numbers for a type to reduce and for an operation. They throw AA_UNIMPLEMENTED if it has none.
  int type_of(int32_t dtype) const;
  int operation_of(int32_t operation) const;
  // Called before a member joins. Throws AA_UNIMPLEMENTED if the library lets a process have one member, and it has.
  void admit(const void* id) const;

  const LibraryTable& table_;
  std::string version_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> used_ids_;  // mutex_

  Result (*id_create_)(void* id) = nullptr;
  void (*join_)() = nullptr;  // one of JoinCall
  Result (*destroy_)(Comm comm) = nullptr;
  const char* (*error_text_)(Result result) = nullptr;
  const char* (*last_error_)(Comm comm) = nullptr;
  Result (*abort_)(Comm comm) = nullptr;
  void (*async_error_)() = nullptr;  // one of AsyncErrorCall
  Result (*group_begin_)() = nullptr;
  Result (*group_end_)() = nullptr;
  Result (*all_reduce_)(const void* send, void* recv, size_t count, int type, int operation, Comm comm,
                        NativeStream stream) = nullptr;
  Result (*reduce_)(const void* send, void* recv, size_t count, int type, int operation, int root, Comm comm,
                    NativeStream stream) = nullptr;
  void (*broadcast_)() = nullptr;  // one of BroadcastCall
  Result (*all_gather_)(const void* send, void* recv, size_t count, int type, Comm comm, NativeStream stream) = nullptr;
  Result (*reduce_scatter_)(const void* send, void* recv, size_t count, int type, int operation, Comm comm,
                            NativeStream stream) = nullptr;
  Result (*send_)(const void* data, size_t count, int type, int peer, Comm comm, NativeStream stream) = nullptr;
  Result (*recv_)(void* data, size_t count, int type, int peer, Comm comm, NativeStream stream) = nullptr;
};

}  // namespace anyaccel::collectives
