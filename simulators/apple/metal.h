// The objects of the simulated Metal. Methods have the selectors of Apple's documentation (developer.apple.com/documentation/metal);
// numbers of enumerations are those of its headers, as metal-cpp repeats them.
//
// Order. A queue is one stream of the engine that keeps no order: a command sees what its waits let it see, whatever ran before it.
// Encoders of a queue are ordered where they use the same tracked buffer and one of them writes it (hazard tracking), by fences,
// and by events; commands of an encoder one after the other, or, where it dispatches concurrently, by barriers.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "simulators/apple/foundation.h"
#include "simulators/apple/msl_source.h"

namespace sim::apple {

struct Size {
  UInteger width, height, depth;
};
struct Range {
  UInteger location, length;
};

inline constexpr UInteger kArguments = 31;      // buffers of an argument table
inline constexpr UInteger kMostBytes = 4096;    // of setBytes
inline constexpr UInteger kMostThreads = 1024;  // of a threadgroup
inline constexpr UInteger kThreadgroupBytes = 32768;
inline constexpr UInteger kWidth = 32;  // threads that execute together
// Encoders, and dispatches of concurrent ones, take turns in so many lanes of their queue: nearer ones are told apart.
inline constexpr std::size_t kLanes = 8;
inline constexpr UInteger kMostSets = 32;  // residency sets of a queue or a command buffer
inline constexpr UInteger kBlitAlignment = 4;
// Addresses of the GPU are not those of the host.
inline constexpr std::uint64_t kGpuBase = std::uint64_t{1} << 44;

enum StorageMode : UInteger { kShared = 0, kManaged = 1, kPrivate = 2, kMemoryless = 3 };
enum Status4 : UInteger { kNotEnqueued, kEnqueued, kCommitted, kScheduled, kCompleted, kFailed };
// MTLCommandBufferError
enum BufferError : Integer {
  kNoError = 0,
  kInternal = 1,
  kTimeout = 2,
  kPageFault = 3,
  kAccessRevoked = 4,
  kOutOfMemory = 8,
  kInvalidResource = 9,
  kDeviceRemoved = 11,
};

struct MetalDevice : Instance {
  explicit MetalDevice(int number) : Instance("MTLDevice"), index(number) {}
  const int index;
};
std::shared_ptr<MetalDevice> metal_device(int index);  // with one more reference, the caller's

// The members of every object of a device.
struct OfDevice : Instance {
  OfDevice(const char* name, Ref<MetalDevice> owner) : Instance(name), device(std::move(owner)) {}
  // References end with the object, and not with what of the simulator still looks at it.
  void dealloc() override { device = {}; }
  Ref<MetalDevice> device;
  std::string label;
};

struct Heap;
struct Buffer : OfDevice {
  explicit Buffer(Ref<MetalDevice> owner) : OfDevice("MTLBuffer", std::move(owner)) {}
  void dealloc() override;
  char* begin() const { return memory->pointer; }
  std::uint64_t gpu_address() const { return reinterpret_cast<std::uint64_t>(begin()) + kGpuBase; }
  std::shared_ptr<const Allocation> memory;
  UInteger length = 0, options = 0;
  StorageMode storage = kShared;
  bool tracked = true;
  bool adopted = false;  // memory of the program
  Block* deallocator = nullptr;
  Ref<Heap> heap;
  std::atomic<int> loans{0};  // command buffers that use it without a reference of theirs, and have not completed
};
// "bytes 8 to 16 of buffer ..."; empty when the range is inside.
std::string outside(const Buffer& buffer, UInteger offset, UInteger bytes);
bool resource_options(UInteger options, StorageMode* storage, bool* tracked, bool heap);

struct Heap : OfDevice {
  explicit Heap(Ref<MetalDevice> owner) : OfDevice("MTLHeap", std::move(owner)) {}
  UInteger size = 0, options = 0;
  std::atomic<UInteger> used{0};
  std::mutex mutex;
  std::vector<std::weak_ptr<Buffer>> buffers;
};

struct MetalEvent : OfDevice {
  MetalEvent(const char* name, Ref<MetalDevice> owner) : OfDevice(name, std::move(owner)) {}
  const std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();
};
struct Fence : OfDevice {
  explicit Fence(Ref<MetalDevice> owner) : OfDevice("MTLFence", std::move(owner)) {}
  std::mutex mutex;
  std::shared_ptr<Event> latest;  // of the last update; null: there was none
};

struct ResidencySet : OfDevice {
  explicit ResidencySet(Ref<MetalDevice> owner) : OfDevice("MTLResidencySet", std::move(owner)) {}
  void dealloc() override {
    committed.clear();
    staged.clear();
    OfDevice::dealloc();
  }
  std::mutex mutex;
  std::map<Id, Ref<Instance>> staged, committed;
};

struct Library : OfDevice {
  explicit Library(Ref<MetalDevice> owner) : OfDevice("MTLLibrary", std::move(owner)) {}
  std::vector<MslKernel> kernels;
};
struct Function : OfDevice {
  explicit Function(Ref<MetalDevice> owner) : OfDevice("MTLFunction", std::move(owner)) {}
  MslKernel kernel;
};
struct Pipeline : OfDevice {
  explicit Pipeline(Ref<MetalDevice> owner) : OfDevice("MTLComputePipelineState", std::move(owner)) {}
  MslKernel kernel;
  const KernelInfo* info = nullptr;
  std::vector<ArgumentSource> sources;
  UInteger most_threads = kMostThreads;
};

// ---- what a command buffer is made of ------------------------------------------------------------------------------------

// The result of a command buffer. Commands refer to it, and may outlive everything else.
struct Outcome {
  std::atomic<Integer> error{kNoError};
};
struct Use {
  std::shared_ptr<Buffer> buffer;
  bool write = false;
};
struct Recorded {
  enum class Kind { work, barrier, update, wait };
  Kind kind = Kind::work;
  const char* what = "";
  std::function<void(Execution&)> run;
  std::shared_ptr<Fence> fence;
  std::set<std::uint64_t> buffers;  // that the work uses, that the barrier is for (none: all), by token
};
// The commands of one encoder, or a signal or wait of an event between encoders.
struct Pass {
  enum class Kind { encoder, signal, wait };
  Kind kind = Kind::encoder;
  bool concurrent = false;
  std::vector<Recorded> commands;
  std::map<std::uint64_t, Use> uses;  // by the buffer's token
  std::shared_ptr<MetalEvent> event;
  std::uint64_t value = 0;
};

struct CommandBuffer;
struct Encoder;

// Runs a queue's command buffers to their end: the stream, and a thread that calls their handlers in order. It outlives
// the queue as long as it has work.
struct QueueWorker {
  QueueWorker(int device);
  void work(const std::shared_ptr<QueueWorker>& self);
  std::unique_ptr<Stream> stream;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Ref<CommandBuffer>> committed;
  UInteger uncompleted = 0;  // made, and neither completed nor deallocated
  std::size_t next_lane = 0;
  bool ending = false;
  std::atomic<bool> broken{false};  // a command buffer has ended with an error of the device
};

struct CommandQueue : OfDevice {
  CommandQueue(Ref<MetalDevice> owner, UInteger most);
  ~CommandQueue() override {
    if (thread.joinable()) thread.detach();  // it was never deallocated
  }
  void dealloc() override;
  const UInteger most;
  const std::shared_ptr<QueueWorker> worker;
  std::thread thread;  // the worker's
  std::mutex mutex;    // guards what follows
  struct Place {
    std::weak_ptr<CommandBuffer> buffer;
    Ref<CommandBuffer> committed;  // from its commit on
  };
  std::deque<Place> order;  // enqueued, and not yet handed to the stream
  std::vector<Ref<ResidencySet>> sets;
  struct Hazard {
    std::shared_ptr<Event> write;
    std::vector<std::shared_ptr<Event>> reads;
  };
  std::map<std::uint64_t, Hazard> hazards;  // by the buffer's token
  std::shared_ptr<Event> gate;              // of the last wait for an event: what follows waits for it
};

struct CommandBuffer : Instance {
  CommandBuffer(Ref<CommandQueue> owner, bool retains);
  void dealloc() override;
  void inject() override { injected = true; }
  // Keeps a resource until the end, or notes that it must live until then.
  void keep(const std::shared_ptr<Instance>& object, bool always_lent = false);
  void complete(Integer code);

  Ref<CommandQueue> queue;
  const bool retains;
  std::string label;
  std::atomic<UInteger> status{kNotEnqueued};
  std::atomic<bool> injected{false};
  const std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
  std::mutex mutex;  // guards what follows
  std::weak_ptr<Encoder> open;
  bool has_open = false;
  std::vector<Pass> passes;
  std::vector<Ref<ResidencySet>> sets;
  std::map<std::uint64_t, Ref<Instance>> kept;
  std::map<std::uint64_t, std::shared_ptr<Buffer>> lent;
  std::vector<Block*> scheduled_handlers, completed_handlers;
  const std::shared_ptr<Event> started = std::make_shared<Event>(), finished = std::make_shared<Event>();
  bool submitted = false;  // the device took it
  Integer refused = kNoError;
  double start = 0, end = 0;  // seconds
  Ref<Error> error;
  bool done = false;  // handlers too; guarded by the worker's lock
};

struct Encoder : Instance {
  Encoder(const char* name, Ref<CommandBuffer> owner, bool is_concurrent);
  void dealloc() override;
  void inject() override { buffer->injected = true; }
  Ref<CommandBuffer> buffer;
  std::string label;
  bool ended = false;
  std::set<const Fence*> updated;
  Pass pass;
  // False with a violation when it has ended or its command buffer was committed.
  bool encoding();
  void use(const std::shared_ptr<Buffer>& resource, bool write);
  void add(const char* what, std::function<void(Execution&)> run);
};

// Hands what may run now to the stream.
void commit(CommandBuffer& buffer);
// Waits for a short time until committed command buffers have ended, because objects retained by a running one are no
// leaks of the program.
void settle();
// Blocks until a condition of the worker's is so; false with a violation after SIM_HANG_SECONDS.
bool wait_for(QueueWorker& worker, std::unique_lock<std::mutex>& lock, const char* what,
              const std::function<bool()>& done);
std::shared_ptr<Buffer> make_buffer(const std::shared_ptr<MetalDevice>& device, UInteger length, UInteger options,
                                    Heap* heap);

}  // namespace sim::apple
