// Implements command queues, command lists (regular and immediate), their commands, and fences.
#include <algorithm>
#include <cstring>
#include <utility>

#include "simulators/level_zero/level_zero_face.h"

namespace sim::level_zero {
namespace {

constexpr std::uint32_t kGroups = 2;  // queue groups of a device; the first computes and copies, the second copies

// Flag of later specifications: the driver itself keeps an immediate list's commands in order.
constexpr std::uint32_t kInOrder = 2;
bool knows_in_order() { return state().version >= ZE_MAKE_VERSION(1, 6); }
bool knows_list_synchronize() { return state().version >= ZE_MAKE_VERSION(1, 6); }

ze_result_t check_queue(const char* function, const ze_command_queue_desc_t* desc) {
  if (desc->ordinal >= kGroups || desc->index != 0) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-argument", "no queue has this ordinal and index");
  }
  if (desc->flags > (knows_in_order() ? 3u : 1u) || desc->mode > ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS ||
      desc->priority > ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_ENUMERATION, "bad-argument", "unknown flags, mode or priority");
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                 const ze_command_queue_desc_t* desc, ze_command_queue_handle_t* queue) {
  SIM_GET(Context, owner, context);
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
  if (const ze_result_t bad = check_queue(__func__, desc)) return bad;
  auto made = std::make_shared<CommandQueue>();
  made->context = owner;
  made->device = object;
  made->ordinal = desc->ordinal;
  made->synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  made->stream = std::make_unique<Stream>(engine(), object->index, false);
  *queue = handle_of<ze_command_queue_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandQueueDestroy(ze_command_queue_handle_t queue) {
  {
    SIM_GET(CommandQueue, object, queue);
    SIM_REQUIRE(object->stream->idle(), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "destroyed-in-use",
                "command lists of the queue have not run");
  }
  return destroy<CommandQueue>(queue, __func__);
}

ze_result_t zeCommandQueueSynchronize(ze_command_queue_handle_t queue, std::uint64_t timeout) {
  SIM_GET(CommandQueue, object, queue);
  return result_of(object->stream->wait(timeout));
}

bool running(const CommandList& list) {
  return std::any_of(list.runs.begin(), list.runs.end(), [](const auto& run) { return engine().in_use(*run); });
}

ze_result_t zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t queue, std::uint32_t count,
                                              ze_command_list_handle_t* lists, ze_fence_handle_t fence) {
  SIM_GET(CommandQueue, object, queue);
  SIM_REQUIRE(count > 0 && lists != nullptr, ZE_RESULT_ERROR_INVALID_SIZE, "bad-argument", "no command lists");
  std::shared_ptr<Fence> done;
  if (fence != nullptr) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    done = get<Fence>(fence, __func__, &result);
    if (done == nullptr) return result;
    SIM_REQUIRE(done->queue == object, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "bad-argument",
                "the fence belongs to another queue");
  }
  // A submission begins after the one before it has ended.
  static const auto begin = std::make_shared<const Command>(Command{__func__, {}, nullptr, nullptr, true, nullptr});
  std::vector<std::shared_ptr<const Command>> commands;
  std::vector<std::pair<std::shared_ptr<CommandList>, std::shared_ptr<Event>>> runs;
  for (std::uint32_t i = 0; i < count; ++i) {
    SIM_GET(CommandList, list, lists[i]);
    SIM_REQUIRE(list->stream == nullptr, ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "list-state",
                "an immediate command list cannot be executed");
    SIM_REQUIRE(list->closed, ZE_RESULT_ERROR_INVALID_ARGUMENT, "list-state", "the command list is not closed");
    SIM_REQUIRE(list->device == object->device && list->ordinal == object->ordinal,
                ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "list-state",
                "the command list was made for another device or queue group");
    commands.push_back(begin);
    commands.insert(commands.end(), list->commands.begin(), list->commands.end());
    auto run = std::make_shared<Event>();
    commands.push_back(std::make_shared<const Command>(Command{__func__, {}, nullptr, run, true, nullptr}));
    runs.emplace_back(list, std::move(run));
  }
  if (done != nullptr) {
    commands.push_back(std::make_shared<const Command>(Command{__func__, {}, nullptr, done->event, true, nullptr}));
  }
  const Status status = object->stream->submit(std::move(commands));
  if (status != Status::ok) return result_of(status);
  for (auto& [list, run] : runs) {
    std::erase_if(list->runs, [](const auto& earlier) { return !engine().in_use(*earlier); });
    list->runs.push_back(std::move(run));
  }
  return object->synchronous ? result_of(object->stream->wait(kForever)) : ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                const ze_command_list_desc_t* desc, ze_command_list_handle_t* list) {
  SIM_GET(Context, owner, context);
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC);
  SIM_REQUIRE(desc->commandQueueGroupOrdinal < kGroups && desc->flags <= 7, ZE_RESULT_ERROR_INVALID_ENUMERATION,
              "bad-argument", "unknown queue group or flags");
  auto made = std::make_shared<CommandList>();
  made->context = owner;
  made->device = object;
  made->ordinal = desc->commandQueueGroupOrdinal;
  *list = handle_of<ze_command_list_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                         const ze_command_queue_desc_t* desc, ze_command_list_handle_t* list) {
  SIM_GET(Context, owner, context);
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
  if (const ze_result_t bad = check_queue(__func__, desc)) return bad;
  auto made = std::make_shared<CommandList>();
  made->context = owner;
  made->device = object;
  made->ordinal = desc->ordinal;
  made->synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  made->stream = std::make_unique<Stream>(engine(), object->index, (desc->flags & kInOrder) != 0);
  *list = handle_of<ze_command_list_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListDestroy(ze_command_list_handle_t list) {
  {
    SIM_GET(CommandList, object, list);
    const bool busy = object->stream != nullptr ? !object->stream->idle() : running(*object);
    SIM_REQUIRE(!busy, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "destroyed-in-use",
                "commands of the command list have not run");
  }
  return destroy<CommandList>(list, __func__);
}

ze_result_t zeCommandListClose(ze_command_list_handle_t list) {
  SIM_GET(CommandList, object, list);
  SIM_REQUIRE(object->stream == nullptr && !object->closed, ZE_RESULT_ERROR_INVALID_ARGUMENT, "list-state",
              "the command list is immediate or closed already");
  object->closed = true;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListReset(ze_command_list_handle_t list) {
  SIM_GET(CommandList, object, list);
  SIM_REQUIRE(object->stream == nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT, "list-state",
              "the command list is immediate");
  SIM_REQUIRE(!running(*object), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "list-state",
              "commands of the command list have not run");
  object->commands.clear();
  object->closed = false;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t list, std::uint64_t timeout) {
  SIM_GET(CommandList, object, list);
  SIM_REQUIRE(object->stream != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-argument",
              "the command list is not immediate");
  return result_of(object->stream->wait(timeout));
}

// The arguments that all append functions have in common.
struct Append {
  const char* function;
  ze_command_list_handle_t list;
  ze_event_handle_t signal = nullptr;
  std::uint32_t wait_count = 0;
  ze_event_handle_t* waits = nullptr;
};

ze_result_t event_of(const Append& append, const CommandList& list, ze_event_handle_t handle,
                     std::shared_ptr<Event>* event) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  const auto object = get<EventObject>(handle, append.function, &result);
  if (object == nullptr) return result;
  if (object->pool->context != list.context) {
    return refuse(append.function, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "bad-argument",
                  "the event belongs to another context");
  }
  *event = object->event;
  return ZE_RESULT_SUCCESS;
}

// Adds `command` (its waits and signal come from `append`) to the list, or submits it.
ze_result_t add(const Append& append, Command command) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  const auto list = get<CommandList>(append.list, append.function, &result);
  if (list == nullptr) return result;
  if (list->closed) {
    return refuse(append.function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "list-state", "the command list is closed");
  }
  if (append.wait_count > 0 && append.waits == nullptr) {
    return refuse(append.function, ZE_RESULT_ERROR_INVALID_SIZE, "bad-argument", "the array of events is null");
  }
  command.what = append.function;
  for (std::uint32_t i = 0; i < append.wait_count; ++i) {
    std::shared_ptr<Event> event;
    if (const ze_result_t bad = event_of(append, *list, append.waits[i], &event)) return bad;
    command.waits.push_back(std::move(event));
  }
  if (append.signal != nullptr) {
    if (const ze_result_t bad = event_of(append, *list, append.signal, &command.signal)) return bad;
  }
  auto shared = std::make_shared<const Command>(std::move(command));
  if (list->stream == nullptr) {
    list->commands.push_back(std::move(shared));
    return ZE_RESULT_SUCCESS;
  }
  const Status status = list->stream->submit({std::move(shared)});
  if (status != Status::ok) {
    // Without a function that waits for the list, a program could not tell when the commands before have ended.
    if (!knows_list_synchronize()) list->stream->wait(kForever);
    return result_of(status);
  }
  return list->synchronous ? result_of(list->stream->wait(kForever)) : ZE_RESULT_SUCCESS;
}

// Live memory of a device, or any memory of the host, as far as can be told when a command is appended.
ze_result_t check_range(const char* function, const void* pointer, std::size_t bytes) {
  if (pointer == nullptr) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "a pointer is null");
  }
  const auto allocation = engine().memory().find(pointer);
  if (allocation == nullptr) return ZE_RESULT_SUCCESS;
  if (allocation->freed) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "use-after-free", "use of freed " + allocation->text());
  }
  const auto offset = static_cast<const char*>(pointer) - allocation->pointer;
  if (offset < 0 || bytes > allocation->size || static_cast<std::size_t>(offset) > allocation->size - bytes) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "out-of-bounds",
                  std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + " of " + allocation->text());
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListAppendWriteGlobalTimestamp(ze_command_list_handle_t list, std::uint64_t* to,
                                                    ze_event_handle_t signal, std::uint32_t wait_count,
                                                    ze_event_handle_t* waits) {
  if (const ze_result_t bad = check_range(__func__, to, sizeof *to)) return bad;
  Command command;
  command.run = [to](Execution& execution) {
    const std::uint64_t cycles = device_cycles(now_ns()) & ((std::uint64_t{1} << kTimestampBits) - 1);
    if (char* at = execution.write(to, sizeof cycles)) std::memcpy(at, &cycles, sizeof cycles);
  };
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeCommandListAppendBarrier(ze_command_list_handle_t list, ze_event_handle_t signal,
                                       std::uint32_t wait_count, ze_event_handle_t* waits) {
  Command command;
  command.barrier = true;
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeCommandListAppendMemoryRangesBarrier(ze_command_list_handle_t list, std::uint32_t count,
                                                   const std::size_t* sizes, const void** ranges,
                                                   ze_event_handle_t signal, std::uint32_t wait_count,
                                                   ze_event_handle_t* waits) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const ze_result_t bad = check_range(__func__, ranges[i], sizes[i])) return bad;
  }
  Command command;
  command.barrier = true;
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void* to, const void* from, std::size_t bytes,
                                          ze_event_handle_t signal, std::uint32_t wait_count,
                                          ze_event_handle_t* waits) {
  if (const ze_result_t bad = check_range(__func__, to, bytes)) return bad;
  if (const ze_result_t bad = check_range(__func__, from, bytes)) return bad;
  const auto t = reinterpret_cast<std::uintptr_t>(to), f = reinterpret_cast<std::uintptr_t>(from);
  SIM_REQUIRE(bytes == 0 || t + bytes <= f || f + bytes <= t, ZE_RESULT_ERROR_OVERLAPPING_REGIONS, "bad-argument",
              "the ranges overlap");
  Command command;
  command.run = [=](Execution& execution) {
    const char* source = execution.read(from, bytes);
    char* target = execution.write(to, bytes);
    if (source != nullptr && target != nullptr) std::memcpy(target, source, bytes);
  };
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void* pointer, const void* pattern,
                                          std::size_t pattern_bytes, std::size_t bytes, ze_event_handle_t signal,
                                          std::uint32_t wait_count, ze_event_handle_t* waits) {
  if (const ze_result_t bad = check_range(__func__, pointer, bytes)) return bad;
  SIM_GET(CommandList, object, list);
  const std::size_t most = object->ordinal == 0 ? 128 : 1;
  SIM_REQUIRE(pattern != nullptr && pattern_bytes > 0 && (pattern_bytes & (pattern_bytes - 1)) == 0 &&
                  pattern_bytes <= most && bytes % pattern_bytes == 0,
              ZE_RESULT_ERROR_INVALID_SIZE, "bad-argument",
              "a pattern must be a power of two of bytes, at most " + std::to_string(most) + ", that divides the size");
  Command command;
  // The pattern is copied at the call.
  std::vector<char> value(static_cast<const char*>(pattern), static_cast<const char*>(pattern) + pattern_bytes);
  command.run = [pointer, bytes, value = std::move(value)](Execution& execution) {
    char* target = execution.write(pointer, bytes);
    for (std::size_t i = 0; target != nullptr && i < bytes; i += value.size()) {
      std::memcpy(target + i, value.data(), value.size());
    }
  };
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeCommandListAppendSignalEvent(ze_command_list_handle_t list, ze_event_handle_t event) {
  Command command;
  command.barrier = true;  // set once all earlier commands have run
  SIM_REQUIRE(event != nullptr, ZE_RESULT_ERROR_INVALID_NULL_HANDLE, "bad-handle", "the event is null");
  return add({__func__, list, event, 0, nullptr}, std::move(command));
}

ze_result_t zeCommandListAppendWaitOnEvents(ze_command_list_handle_t list, std::uint32_t count,
                                            ze_event_handle_t* events) {
  SIM_REQUIRE(count > 0 && events != nullptr, ZE_RESULT_ERROR_INVALID_SIZE, "bad-argument", "no events");
  Command command;
  command.barrier = true;  // everything after it sees what it waited for
  return add({__func__, list, nullptr, count, events}, std::move(command));
}

ze_result_t zeCommandListAppendEventReset(ze_command_list_handle_t list, ze_event_handle_t event) {
  Command command;
  command.barrier = true;
  {
    SIM_GET(CommandList, object, list);
    if (const ze_result_t bad = event_of({__func__, list}, *object, event, &command.reset)) return bad;
  }
  return add({__func__, list}, std::move(command));
}

ze_result_t zeCommandListAppendQueryKernelTimestamps(ze_command_list_handle_t list, std::uint32_t count,
                                                     ze_event_handle_t* events, void* to, const std::size_t* offsets,
                                                     ze_event_handle_t signal, std::uint32_t wait_count,
                                                     ze_event_handle_t* waits) {
  std::vector<std::pair<std::shared_ptr<Event>, char*>> results;
  {
    SIM_GET(CommandList, object, list);
    for (std::uint32_t i = 0; i < count; ++i) {
      char* at = static_cast<char*>(to) + (offsets != nullptr ? offsets[i] : i * sizeof(ze_kernel_timestamp_result_t));
      if (const ze_result_t bad = check_range(__func__, at, sizeof(ze_kernel_timestamp_result_t))) return bad;
      std::shared_ptr<Event> event;
      if (const ze_result_t bad = event_of({__func__, list}, *object, events[i], &event)) return bad;
      results.emplace_back(std::move(event), at);
    }
  }
  Command command;
  command.run = [results = std::move(results)](Execution& execution) {
    constexpr std::uint64_t kMask = (std::uint64_t{1} << kTimestampBits) - 1;
    for (const auto& [event, at] : results) {
      const auto times = engine().times(*event);
      if (!times) {
        engine().report().violation("event-state", "timestamps are asked of an event that is not set");
        continue;
      }
      ze_kernel_timestamp_result_t result;
      result.global.kernelStart = result.context.kernelStart = device_cycles(times->first) & kMask;
      result.global.kernelEnd = result.context.kernelEnd = device_cycles(times->second) & kMask;
      if (char* target = execution.write(at, sizeof result)) std::memcpy(target, &result, sizeof result);
    }
  };
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeCommandListAppendLaunchKernel(ze_command_list_handle_t list, ze_kernel_handle_t kernel,
                                            const ze_group_count_t* groups, ze_event_handle_t signal,
                                            std::uint32_t wait_count, ze_event_handle_t* waits) {
  Command command;
  {
    SIM_GET(CommandList, target, list);
    SIM_GET(Kernel, object, kernel);
    SIM_REQUIRE(groups != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "the group count is null");
    SIM_REQUIRE(target->ordinal == 0, ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "bad-argument",
                "the queue group of the command list only copies");
    SIM_REQUIRE(object->module->device == target->device && object->module->context == target->context,
                ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-argument",
                "the kernel was built for another device or context than the command list's");
    SIM_REQUIRE(groups->groupCountX > 0 && groups->groupCountY > 0 && groups->groupCountZ > 0,
                ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, "bad-argument", "a grid without groups");
    SIM_REQUIRE(object->group_size_set, ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, "kernel-state",
                "zeKernelSetGroupSize was not called for " + object->info->name);
    for (std::size_t i = 0; i < object->arguments.size(); ++i) {
      const std::string which = "argument " + std::to_string(i) + " of " + object->info->name;
      SIM_REQUIRE(!object->arguments[i].empty(), ZE_RESULT_ERROR_INVALID_ARGUMENT, "kernel-state",
                  which + " was not set");
      if (!object->info->parameters[i].pointer) continue;
      const void* pointer = nullptr;
      std::memcpy(&pointer, object->arguments[i].data(), sizeof pointer);
      if (pointer == nullptr) continue;
      SIM_REQUIRE(engine().memory().find(pointer) != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-pointer",
                  which + " is no memory of a device");
      if (const ze_result_t bad = check_range(__func__, pointer, 0)) return bad;
    }
    // The values are taken now; the module must live until the kernel has run.
    command.run = [info = object->info, values = object->arguments, module = std::weak_ptr<Module>(object->module),
                   x = groups->groupCountX, y = groups->groupCountY, z = groups->groupCountZ](Execution& execution) {
      if (module.expired()) {
        engine().report().violation("destroyed-in-use",
                                    "the module of kernel " + info->name + " was destroyed before the kernel ran");
        return;
      }
      const std::uint32_t grid[3] = {x, y, z};
      execution.launch(*info, values, grid);
    };
  }
  return add({__func__, list, signal, wait_count, waits}, std::move(command));
}

ze_result_t zeFenceCreate(ze_command_queue_handle_t queue, const ze_fence_desc_t* desc, ze_fence_handle_t* fence) {
  SIM_GET(CommandQueue, object, queue);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_FENCE_DESC);
  auto made = std::make_shared<Fence>();
  made->queue = object;
  if (desc->flags & ZE_FENCE_FLAG_SIGNALED) engine().signal(*made->event);
  *fence = handle_of<ze_fence_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeFenceDestroy(ze_fence_handle_t fence) {
  {
    SIM_GET(Fence, object, fence);
    SIM_REQUIRE(!engine().in_use(*object->event), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "destroyed-in-use",
                "the command lists that set the fence have not run");
  }
  return destroy<Fence>(fence, __func__);
}

ze_result_t zeFenceHostSynchronize(ze_fence_handle_t fence, std::uint64_t timeout) {
  SIM_GET(Fence, object, fence);
  return result_of(engine().wait(*object->event, timeout));
}

ze_result_t zeFenceQueryStatus(ze_fence_handle_t fence) {
  SIM_GET(Fence, object, fence);
  return result_of(engine().wait(*object->event, 0));
}

ze_result_t zeFenceReset(ze_fence_handle_t fence) {
  SIM_GET(Fence, object, fence);
  engine().reset(*object->event);
  return ZE_RESULT_SUCCESS;
}

}  // namespace

SIM_TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
SIM_BIND(pfnCreate, zeCommandQueueCreate);
SIM_BIND(pfnDestroy, zeCommandQueueDestroy);
SIM_BIND(pfnExecuteCommandLists, zeCommandQueueExecuteCommandLists);
SIM_BIND(pfnSynchronize, zeCommandQueueSynchronize);
SIM_TABLE_END

SIM_TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t)
SIM_BIND(pfnCreate, zeCommandListCreate);
SIM_BIND(pfnCreateImmediate, zeCommandListCreateImmediate);
SIM_BIND(pfnDestroy, zeCommandListDestroy);
SIM_BIND(pfnClose, zeCommandListClose);
SIM_BIND(pfnReset, zeCommandListReset);
SIM_BIND(pfnAppendWriteGlobalTimestamp, zeCommandListAppendWriteGlobalTimestamp);
SIM_BIND(pfnAppendBarrier, zeCommandListAppendBarrier);
SIM_BIND(pfnAppendMemoryRangesBarrier, zeCommandListAppendMemoryRangesBarrier);
SIM_BIND(pfnAppendMemoryCopy, zeCommandListAppendMemoryCopy);
SIM_BIND(pfnAppendMemoryFill, zeCommandListAppendMemoryFill);
SIM_BIND(pfnAppendSignalEvent, zeCommandListAppendSignalEvent);
SIM_BIND(pfnAppendWaitOnEvents, zeCommandListAppendWaitOnEvents);
SIM_BIND(pfnAppendEventReset, zeCommandListAppendEventReset);
SIM_BIND(pfnAppendQueryKernelTimestamps, zeCommandListAppendQueryKernelTimestamps);
SIM_BIND(pfnAppendLaunchKernel, zeCommandListAppendLaunchKernel);
[](auto* later) {  // headers of 1.6
  if constexpr (requires { later->pfnHostSynchronize; }) {
    later->pfnHostSynchronize = bind<&zeCommandListHostSynchronize>("zeCommandListHostSynchronize");
  }
}(table);
SIM_TABLE_END

// For tests behind a loader that lacks the function.
extern "C" ZE_DLLEXPORT ze_result_t sim_zeCommandListHostSynchronize(ze_command_list_handle_t list,
                                                                     std::uint64_t timeout) {
  return zeCommandListHostSynchronize(list, timeout);
}

SIM_TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t)
SIM_BIND(pfnCreate, zeFenceCreate);
SIM_BIND(pfnDestroy, zeFenceDestroy);
SIM_BIND(pfnHostSynchronize, zeFenceHostSynchronize);
SIM_BIND(pfnQueryStatus, zeFenceQueryStatus);
SIM_BIND(pfnReset, zeFenceReset);
SIM_TABLE_END

}  // namespace sim::level_zero
