// Implements encoders of compute and blit commands.
#include <algorithm>
#include <cstring>

#include "simulators/apple/metal.h"

namespace sim::apple {

Encoder::Encoder(const char* name, Ref<CommandBuffer> owner, bool is_concurrent)
    : Instance(name), buffer(std::move(owner)) {
  pass.concurrent = is_concurrent;
}

// Metal stops the program: "Command encoder released without endEncoding".
void Encoder::dealloc() {
  if (!ended) {
    violation("encoder-state", "an encoder is deallocated without endEncoding");
    const std::lock_guard lock(buffer->mutex);
    buffer->has_open = false;
  }
  const Ref<CommandBuffer> last = std::move(buffer);
}

bool Encoder::encoding() {
  APPLE_REQUIRE(!ended, false, "encoder-state", "a command after endEncoding");
  return true;
}

void Encoder::use(const std::shared_ptr<Buffer>& resource, bool write) {
  Use& known = pass.uses[resource->token];
  known.buffer = resource;
  known.write = known.write || write;
}

void Encoder::add(const char* what, std::function<void(Execution&)> run) {
  Recorded recorded;
  recorded.what = what;
  recorded.run = std::move(run);
  pass.commands.push_back(std::move(recorded));
}

namespace {

// ---- every encoder ---------------------------------------------------------------------------------------------------------

void end_encoding(Encoder& self) {
  if (!self.encoding()) return;
  self.ended = true;
  const std::lock_guard lock(self.buffer->mutex);
  self.buffer->has_open = false;
  if (!self.pass.commands.empty()) self.buffer->passes.push_back(std::move(self.pass));
}
Id device_of_encoder(Encoder& self) { return self.buffer->queue->device->id(); }
Id label_of_encoder(Encoder& self) { return self.label.empty() ? nullptr : string_autoreleased(self.label); }
void set_label_of_encoder(Encoder& self, Id label) {
  self.label.clear();
  if (label != nullptr) text_of(label, "the label", &self.label);
}
void named(Encoder&, Id name) { get<String>(name, "the name"); }
void pop_group(Encoder&) {}

// The header: drivers may delay updates to the end of an encoder, and wait at its beginning, so that to wait for a fence after it was
// updated in the same encoder is illegal. Fences of Metal 3 work between queues of one device too.
void update_fence(Encoder& self, Id id) {
  const auto fence = get<Fence>(id, "the fence");
  if (fence == nullptr || !self.encoding()) return;
  self.updated.insert(fence.get());
  self.buffer->keep(fence);
  Recorded recorded;
  recorded.kind = Recorded::Kind::update;
  recorded.fence = fence;
  self.pass.commands.push_back(std::move(recorded));
}
void wait_for_fence(Encoder& self, Id id) {
  const auto fence = get<Fence>(id, "the fence");
  if (fence == nullptr || !self.encoding()) return;
  APPLE_REQUIRE(self.updated.count(fence.get()) == 0, , "encoder-state",
                "the encoder waits for a fence that it has updated itself");
  self.buffer->keep(fence);
  Recorded recorded;
  recorded.kind = Recorded::Kind::wait;
  recorded.fence = fence;
  self.pass.commands.push_back(std::move(recorded));
}

PROTOCOL("MTLCommandEncoder", "NSObject")
METHOD("MTLCommandEncoder", "endEncoding", end_encoding)
SURE_METHOD("MTLCommandEncoder", "device", device_of_encoder)
SURE_METHOD("MTLCommandEncoder", "label", label_of_encoder)
METHOD("MTLCommandEncoder", "setLabel:", set_label_of_encoder)
METHOD("MTLCommandEncoder", "insertDebugSignpost:", named)
METHOD("MTLCommandEncoder", "pushDebugGroup:", named)
METHOD("MTLCommandEncoder", "popDebugGroup", pop_group)
METHOD("MTLCommandEncoder", "updateFence:", update_fence)
METHOD("MTLCommandEncoder", "waitForFence:", wait_for_fence)

// ---- blits -----------------------------------------------------------------------------------------------------------------

struct BlitEncoder : Encoder {
  explicit BlitEncoder(Ref<CommandBuffer> owner) : Encoder("MTLBlitCommandEncoder", std::move(owner), false) {}
};

bool own_device(const Encoder& self, const Buffer& buffer) {
  APPLE_REQUIRE(buffer.device.get() == self.buffer->queue->device.get(), false, "wrong-owner",
                "the buffer is another device's");
  return true;
}

// Ranges and multiples of 4: the documentation of both methods, "in macOS".
void fill(BlitEncoder& self, Id id, Range range, std::uint8_t value) {
  const auto buffer = get<Buffer>(id, "the buffer");
  if (buffer == nullptr || !self.encoding() || !own_device(self, *buffer)) return;
  const std::string problem = outside(*buffer, range.location, range.length);
  APPLE_REQUIRE(problem.empty(), , "out-of-bounds", problem);
  APPLE_REQUIRE(range.length > 0, , "bad-argument", "a range of no bytes");
  APPLE_REQUIRE(range.location % kBlitAlignment == 0 && range.length % kBlitAlignment == 0, , "bad-argument",
                "bytes " + std::to_string(range.location) + " and " + std::to_string(range.length) +
                    " more: on macOS both are multiples of 4");
  self.buffer->keep(buffer);
  self.use(buffer, true);
  self.add("fillBuffer", [at = buffer->begin() + range.location, bytes = range.length, value](Execution& execution) {
    if (char* target = execution.write(at, bytes)) std::memset(target, value, bytes);
  });
}

void copy(BlitEncoder& self, Id from, UInteger from_offset, Id to, UInteger to_offset, UInteger bytes) {
  const auto source = get<Buffer>(from, "the source"), target = get<Buffer>(to, "the destination");
  if (source == nullptr || target == nullptr || !self.encoding() || !own_device(self, *source) ||
      !own_device(self, *target))
    return;
  const std::string left = outside(*source, from_offset, bytes), right = outside(*target, to_offset, bytes);
  APPLE_REQUIRE(left.empty(), , "out-of-bounds", "source: " + left);
  APPLE_REQUIRE(right.empty(), , "out-of-bounds", "destination: " + right);
  APPLE_REQUIRE(from_offset % kBlitAlignment == 0 && to_offset % kBlitAlignment == 0 && bytes % kBlitAlignment == 0, ,
                "bad-argument",
                std::to_string(bytes) + " bytes from " + std::to_string(from_offset) + " to " +
                    std::to_string(to_offset) + ": on macOS all are multiples of 4");
  APPLE_REQUIRE(bytes > 0, , "bad-argument", "a copy of no bytes");
  const char *begin = source->begin() + from_offset, *into = target->begin() + to_offset;
  APPLE_REQUIRE(begin + bytes <= into || into + bytes <= begin, , "bad-argument",
                "the ranges overlap: the result is undefined");
  self.buffer->keep(source);
  self.buffer->keep(target);
  self.use(source, false);
  self.use(target, true);
  self.add("copyFromBuffer", [begin, into, bytes](Execution& execution) {
    const char* in = execution.read(begin, bytes);
    char* out = execution.write(const_cast<char*>(into), bytes);
    if (in != nullptr && out != nullptr) std::memcpy(out, in, bytes);
  });
}
void synchronize(BlitEncoder&, Id) { violation("bad-argument", "synchronizeResource is for managed storage alone"); }

PROTOCOL("MTLBlitCommandEncoder", "MTLCommandEncoder")
METHOD("MTLBlitCommandEncoder", "fillBuffer:range:value:", fill)
METHOD("MTLBlitCommandEncoder", "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", copy)
METHOD("MTLBlitCommandEncoder", "synchronizeResource:", synchronize)

// ---- compute ---------------------------------------------------------------------------------------------------------------

using Bytes = std::shared_ptr<const std::vector<char>>;
struct Binding {
  std::shared_ptr<Buffer> buffer;
  UInteger offset = 0;
  Bytes bytes;
  bool bound() const { return buffer != nullptr || bytes != nullptr; }
  UInteger space() const { return bytes != nullptr ? bytes->size() : buffer->length - offset; }
};

struct ComputeEncoder : Encoder {
  ComputeEncoder(Ref<CommandBuffer> owner, bool is_concurrent)
      : Encoder("MTLComputeCommandEncoder", std::move(owner), is_concurrent) {}
  std::shared_ptr<Pipeline> pipeline;
  Binding bindings[kArguments];
  UInteger threadgroup_bytes[kArguments] = {};
  std::set<std::uint64_t> resident, writable;  // tokens of buffers declared by useResource and useHeap
  std::vector<std::shared_ptr<Heap>> heaps;
};

UInteger dispatch_type(ComputeEncoder& self) { return self.pass.concurrent ? 1 : 0; }

void set_pipeline(ComputeEncoder& self, Id id) {
  const auto pipeline = get<Pipeline>(id, "the pipeline state");
  if (pipeline == nullptr || !self.encoding()) return;
  APPLE_REQUIRE(pipeline->device.get() == self.buffer->queue->device.get(), , "wrong-owner",
                "the pipeline state is another device's");
  self.buffer->keep(pipeline);
  self.pipeline = pipeline;
}

bool good_index(UInteger index) {
  APPLE_REQUIRE(index < kArguments, false, "bad-argument", "argument " + std::to_string(index) + "; there are 31");
  return true;
}

void set_buffer(ComputeEncoder& self, Id id, UInteger offset, UInteger index) {
  if (!good_index(index) || !self.encoding()) return;
  if (id == nullptr) {
    self.bindings[index] = {};
    return;
  }
  const auto buffer = get<Buffer>(id, "the buffer");
  if (buffer == nullptr || !own_device(self, *buffer)) return;
  APPLE_REQUIRE(offset < buffer->length, , "out-of-bounds",
                "offset " + std::to_string(offset) + " of a buffer of " + std::to_string(buffer->length));
  self.buffer->keep(buffer);
  self.bindings[index] = {buffer, offset, nullptr};
}
void set_buffers(ComputeEncoder& self, const Id* ids, const UInteger* offsets, Range range) {
  for (UInteger i = 0; i < range.length; ++i) set_buffer(self, ids[i], offsets[i], range.location + i);
}
void set_offset(ComputeEncoder& self, UInteger offset, UInteger index) {
  if (!good_index(index) || !self.encoding()) return;
  Binding& binding = self.bindings[index];
  APPLE_REQUIRE(binding.buffer != nullptr, , "missing-binding", "the offset of an argument that has no buffer");
  APPLE_REQUIRE(offset < binding.buffer->length, , "out-of-bounds",
                "offset " + std::to_string(offset) + " of a buffer of " + std::to_string(binding.buffer->length));
  binding.offset = offset;
}
void set_argument_bytes(ComputeEncoder& self, const void* bytes, UInteger length, UInteger index) {
  if (!good_index(index) || !self.encoding()) return;
  APPLE_REQUIRE(bytes != nullptr && length > 0, , "bad-argument", "no bytes");
  APPLE_REQUIRE(length <= kMostBytes, , "bad-argument",
                std::to_string(length) + " bytes; 4096 at most, above that a buffer");
  const auto* first = static_cast<const char*>(bytes);
  self.bindings[index] = {nullptr, 0, std::make_shared<const std::vector<char>>(first, first + length)};
}
void set_threadgroup_bytes(ComputeEncoder& self, UInteger length, UInteger index) {
  if (!good_index(index) || !self.encoding()) return;
  APPLE_REQUIRE(length % 16 == 0, , "bad-argument",
                std::to_string(length) + " bytes of threadgroup memory, no multiple of 16");
  APPLE_REQUIRE(length <= kThreadgroupBytes, , "local-memory",
                std::to_string(length) + " bytes of threadgroup memory; 32768 at most");
  self.threadgroup_bytes[index] = length;
}

// MTLResourceUsage: 1 read, 2 write. The headers: hazards of tracked resources are seen to, and the resource is not retained.
void use_resource(ComputeEncoder& self, Id id, UInteger usage) {
  const auto buffer = get<Buffer>(id, "the resource");
  if (buffer == nullptr || !self.encoding() || !own_device(self, *buffer)) return;
  APPLE_REQUIRE(usage >= 1 && usage <= 7, , "bad-argument", "usage " + std::to_string(usage));
  self.buffer->keep(buffer, true);
  self.resident.insert(buffer->token);
  if (usage & 2) self.writable.insert(buffer->token);
  self.use(buffer, (usage & 2) != 0);
}
void use_resources(ComputeEncoder& self, const Id* ids, UInteger count, UInteger usage) {
  for (UInteger i = 0; i < count; ++i) use_resource(self, ids[i], usage);
}
// Resources of a heap are there to be read.
void use_heap(ComputeEncoder& self, Id id) {
  const auto heap = get<Heap>(id, "the heap");
  if (heap == nullptr || !self.encoding()) return;
  self.heaps.push_back(heap);
  const std::lock_guard lock(heap->mutex);
  for (const auto& weak : heap->buffers) {
    if (const auto buffer = weak.lock(); buffer != nullptr && buffer->alive()) self.use(buffer, false);
  }
}
void use_heaps(ComputeEncoder& self, const Id* ids, UInteger count) {
  for (UInteger i = 0; i < count; ++i) use_heap(self, ids[i]);
}

void add_barrier(ComputeEncoder& self, std::set<std::uint64_t> buffers) {
  Recorded recorded;
  recorded.kind = Recorded::Kind::barrier;
  recorded.buffers = std::move(buffers);
  self.pass.commands.push_back(std::move(recorded));
}
// MTLBarrierScope: 1 buffers, 2 textures.
void barrier_with_scope(ComputeEncoder& self, UInteger scope) {
  if (!self.encoding()) return;
  APPLE_REQUIRE(scope >= 1 && scope <= 3, , "bad-argument", "scope " + std::to_string(scope));
  if (scope & 1) add_barrier(self, {});
}
// Orders the commands that use one of them with those that follow.
void barrier_with_resources(ComputeEncoder& self, const Id* ids, UInteger count) {
  if (!self.encoding()) return;
  std::set<std::uint64_t> buffers;
  for (UInteger i = 0; i < count; ++i) {
    const auto buffer = get<Buffer>(ids[i], "the resource");
    if (buffer == nullptr) return;
    buffers.insert(buffer->token);
  }
  if (count > 0) add_barrier(self, std::move(buffers));
}

// ---- a launch

// The source of a parameter's bytes when the kernel runs.
struct Operand {
  ArgumentSource source;
  const char* pointer = nullptr;  // of the buffer, with the offset; null: `bytes`, or nothing was bound
  Bytes bytes;
  std::string name;
};
struct Launch {
  std::shared_ptr<Pipeline> pipeline;
  std::vector<Operand> operands;
  LaunchShape shape;
  std::set<std::uint64_t> resident, writable;  // of allocations, by their address
};

// The buffers that a residency set makes resident.
void add_residents(ResidencySet& set, std::set<std::uint64_t>* resident) {
  const std::lock_guard lock(set.mutex);
  for (const auto& [id, object] : set.committed) {
    if (const auto* buffer = dynamic_cast<const Buffer*>(object.get())) {
      resident->insert(reinterpret_cast<std::uint64_t>(buffer->begin()));
    }
    auto* heap = dynamic_cast<Heap*>(object.get());
    if (heap == nullptr) continue;
    const std::lock_guard heap_lock(heap->mutex);
    for (const auto& weak : heap->buffers) {
      if (const auto buffer = weak.lock(); buffer != nullptr && buffer->alive()) {
        resident->insert(reinterpret_cast<std::uint64_t>(buffer->begin()));
      }
    }
  }
}

// The value of one parameter; false after a violation.
bool value_of(const Launch& launch, const Operand& operand, const std::vector<Ref<ResidencySet>>& sets,
              Execution& execution, std::vector<char>* value) {
  const ArgumentSource& source = operand.source;
  const std::string who = "kernel " + launch.pipeline->info->name + ", argument '" + operand.name + "': ";
  const auto complain = [&](const char* kind, const std::string& what) {
    engine().report().violation(kind, who + what);
    execution.fail(Status::bad_access);
    return false;
  };
  value->assign(source.size, 0);
  if (!source.in_memory) {
    std::memcpy(value->data(), &operand.pointer, sizeof operand.pointer);
    return true;
  }
  if (operand.bytes != nullptr) {
    std::memcpy(value->data(), operand.bytes->data() + source.offset, source.size);
  } else if (operand.pointer != nullptr) {
    const char* bytes = execution.read(operand.pointer + source.offset, source.size);
    if (bytes == nullptr) return false;
    std::memcpy(value->data(), bytes, source.size);
  } else {
    return false;
  }
  if (!source.pointer) return true;
  std::uint64_t address = 0;
  std::memcpy(&address, value->data(), sizeof address);
  if (address == 0) return true;  // a null pointer
  const auto* pointer = reinterpret_cast<const char*>(address - kGpuBase);
  const auto allocation = engine().memory().find(pointer);
  if (allocation == nullptr) return complain("bad-pointer", "no gpuAddress of a buffer");
  if (allocation->freed) return complain("use-after-free", "freed " + allocation->text());
  const auto base = reinterpret_cast<std::uint64_t>(allocation->pointer);
  bool resident = launch.resident.count(base) != 0;
  if (!resident) {
    std::set<std::uint64_t> more;
    for (const auto& set : sets) add_residents(*set, &more);
    resident = more.count(base) != 0;
  } else if (source.writes && launch.writable.count(base) == 0) {
    return complain("not-resident",
                    allocation->text() + " was declared by useResource to be read alone, and may be written");
  }
  if (!resident) {
    return complain("not-resident",
                    allocation->text() + " is neither bound nor declared by useResource, useHeap or a residency set");
  }
  std::memcpy(value->data(), &pointer, sizeof pointer);
  return true;
}

void dispatch(ComputeEncoder& self, Size groups, Size threads) {
  if (!self.encoding()) return;
  const auto pipeline = self.pipeline;
  APPLE_REQUIRE(pipeline != nullptr, , "kernel-state", "no pipeline state is set");
  const std::string& name = pipeline->info->name;
  APPLE_REQUIRE(groups.width > 0 && groups.height > 0 && groups.depth > 0, , "kernel-state",
                name + ": a grid without threadgroups");
  const UInteger count = threads.width * threads.height * threads.depth;
  APPLE_REQUIRE(
      count > 0 && threads.width <= kMostThreads && threads.height <= kMostThreads && threads.depth <= kMostThreads, ,
      "kernel-state",
      name + ": a threadgroup of (" + std::to_string(threads.width) + ", " + std::to_string(threads.height) + ", " +
          std::to_string(threads.depth) + ") threads");
  APPLE_REQUIRE(count <= pipeline->most_threads, , "kernel-state",
                name + ": a threadgroup of " + std::to_string(count) + " threads; the pipeline state takes " +
                    std::to_string(pipeline->most_threads));
  APPLE_REQUIRE(threads.height == 1 && threads.depth == 1, , "kernel-state",
                name + ": its threadgroups have one dimension");
  auto launch = std::make_shared<Launch>();
  launch->pipeline = pipeline;
  launch->shape.groups[0] = static_cast<std::uint32_t>(groups.width);
  launch->shape.groups[1] = static_cast<std::uint32_t>(groups.height);
  launch->shape.groups[2] = static_cast<std::uint32_t>(groups.depth);
  launch->shape.group_size = static_cast<int>(count);
  launch->shape.static_limit = launch->shape.local_limit = kThreadgroupBytes;
  for (const int index : pipeline->kernel.threadgroup_indices) {
    const UInteger bytes = self.threadgroup_bytes[index];
    APPLE_REQUIRE(bytes > 0, , "missing-binding",
                  name + ": the length of threadgroup memory " + std::to_string(index) + " is not set");
    launch->shape.dynamic_local += bytes;
  }
  // "missing buffer binding at index", "has space for N bytes, but argument has a length(M)", "Read-only bytes are being bound": Metal's
  // validation stops the program.
  std::set<std::uint64_t> used = self.resident;
  for (const MslArgument& argument : pipeline->kernel.arguments) {
    const Binding& binding = self.bindings[argument.index];
    const std::string which = name + ": buffer " + std::to_string(argument.index) + " ('" + argument.name + "') ";
    APPLE_REQUIRE(binding.bound(), , "missing-binding", which + "is not bound");
    APPLE_REQUIRE(!argument.reference || binding.space() >= argument.size, , "missing-binding",
                  which + "has " + std::to_string(binding.space()) + " bytes of " + std::to_string(argument.size));
    APPLE_REQUIRE(binding.buffer != nullptr || !argument.writes, , "bad-argument",
                  which + "may be written, and bytes are bound");
    if (binding.buffer == nullptr) continue;
    self.use(binding.buffer, argument.writes);
    used.insert(binding.buffer->token);
    launch->resident.insert(reinterpret_cast<std::uint64_t>(binding.buffer->begin()));
    if (argument.writes) launch->writable.insert(reinterpret_cast<std::uint64_t>(binding.buffer->begin()));
  }
  for (std::size_t i = 0; i < pipeline->sources.size(); ++i) {
    Operand operand;
    operand.source = pipeline->sources[i];
    const MslArgument& argument = pipeline->kernel.arguments[operand.source.argument];
    const Binding& binding = self.bindings[argument.index];
    operand.name = argument.name;
    operand.bytes = binding.bytes;
    if (binding.buffer != nullptr) operand.pointer = binding.buffer->begin() + binding.offset;
    APPLE_REQUIRE(operand.source.in_memory || operand.pointer != nullptr, , "bad-argument",
                  name + ": bytes behind the pointer '" + argument.name + "' are not simulated");
    APPLE_REQUIRE(
        !operand.source.in_memory || binding.space() >= operand.source.offset + operand.source.size, ,
        "missing-binding",
        name + ": buffer " + std::to_string(argument.index) + " has " + std::to_string(binding.space()) + " bytes");
    launch->operands.push_back(std::move(operand));
  }
  for (const auto& entry : self.pass.uses) {
    const auto& token = entry.first;
    const auto& use = entry.second;
    const bool declared = self.resident.count(token) != 0;
    const auto base = reinterpret_cast<std::uint64_t>(use.buffer->begin());
    const bool of_heap = std::any_of(self.heaps.begin(), self.heaps.end(), [&](const std::shared_ptr<Heap>& heap) {
      return use.buffer->heap.get() == heap.get();
    });
    if (declared || of_heap) launch->resident.insert(base);
    if (of_heap) used.insert(token);
    if (self.writable.count(token) != 0) launch->writable.insert(base);
  }
  const std::weak_ptr<CommandBuffer> owner = self.buffer.shared();
  self.add(pipeline->info->name.c_str(), [launch, owner](Execution& execution) {
    if (!launch->pipeline->alive()) {
      engine().report().violation("use-after-free", "the pipeline state of kernel " + launch->pipeline->info->name +
                                                        " was deallocated before the kernel ran");
      execution.fail(Status::bad_access);
      return;
    }
    const auto buffer = owner.lock();
    if (buffer == nullptr) return;
    std::vector<std::vector<char>> values(launch->operands.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!value_of(*launch, launch->operands[i], buffer->sets, execution, &values[i])) return;
    }
    execution.launch(*launch->pipeline->info, values, launch->shape);
  });
  self.pass.commands.back().buffers = std::move(used);
}

// The threads of a whole grid; threadgroups at its edges would be smaller, which is not simulated.
void dispatch_threads(ComputeEncoder& self, Size all, Size threads) {
  APPLE_REQUIRE(threads.width > 0 && threads.height > 0 && threads.depth > 0 && all.width % threads.width == 0 &&
                    all.height % threads.height == 0 && all.depth % threads.depth == 0,
                , "kernel-state", "threadgroups of different sizes are not simulated");
  dispatch(self, {all.width / threads.width, all.height / threads.height, all.depth / threads.depth}, threads);
}

PROTOCOL("MTLComputeCommandEncoder", "MTLCommandEncoder")
METHOD("MTLComputeCommandEncoder", "dispatchType", dispatch_type)
METHOD("MTLComputeCommandEncoder", "setComputePipelineState:", set_pipeline)
METHOD("MTLComputeCommandEncoder", "setBuffer:offset:atIndex:", set_buffer)
METHOD("MTLComputeCommandEncoder", "setBuffers:offsets:withRange:", set_buffers)
METHOD("MTLComputeCommandEncoder", "setBufferOffset:atIndex:", set_offset)
METHOD("MTLComputeCommandEncoder", "setBytes:length:atIndex:", set_argument_bytes)
METHOD("MTLComputeCommandEncoder", "setThreadgroupMemoryLength:atIndex:", set_threadgroup_bytes)
METHOD("MTLComputeCommandEncoder", "useResource:usage:", use_resource)
METHOD("MTLComputeCommandEncoder", "useResources:count:usage:", use_resources)
METHOD("MTLComputeCommandEncoder", "useHeap:", use_heap)
METHOD("MTLComputeCommandEncoder", "useHeaps:count:", use_heaps)
METHOD("MTLComputeCommandEncoder", "memoryBarrierWithScope:", barrier_with_scope)
METHOD("MTLComputeCommandEncoder", "memoryBarrierWithResources:count:", barrier_with_resources)
METHOD("MTLComputeCommandEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", dispatch)
METHOD("MTLComputeCommandEncoder", "dispatchThreads:threadsPerThreadgroup:", dispatch_threads)

// ---- made by command buffers -------------------------------------------------------------------------------------------------

template <typename T, typename... Args>
Id open_encoder(CommandBuffer& self, Args... args) {
  {
    const std::lock_guard lock(self.mutex);
    APPLE_REQUIRE(self.status < kCommitted, nullptr, "command-buffer-state",
                  "the command buffer was committed already");
    // "A command encoder is already encoding to this command buffer": Metal stops the program.
    APPLE_REQUIRE(!self.has_open, nullptr, "encoder-state", "another encoder of the command buffer has not ended");
    self.has_open = true;
  }
  const auto owner = std::static_pointer_cast<CommandBuffer>(find_object(self.id(), "the command buffer"));
  return autorelease(create<T>(Ref<CommandBuffer>(owner), args...));
}
Id blit_encoder(CommandBuffer& self) { return open_encoder<BlitEncoder>(self); }
Id compute_encoder(CommandBuffer& self) { return open_encoder<ComputeEncoder>(self, false); }
Id compute_encoder_of_type(CommandBuffer& self, UInteger type) {
  APPLE_REQUIRE(type <= 1, nullptr, "bad-argument", "dispatch type " + std::to_string(type));
  return open_encoder<ComputeEncoder>(self, type == 1);
}
METHOD("MTLCommandBuffer", "blitCommandEncoder", blit_encoder)
METHOD("MTLCommandBuffer", "computeCommandEncoder", compute_encoder)
METHOD("MTLCommandBuffer", "computeCommandEncoderWithDispatchType:", compute_encoder_of_type)

}  // namespace
}  // namespace sim::apple
