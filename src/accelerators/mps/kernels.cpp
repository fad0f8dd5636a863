// Implements kernels.h: compiles device code, writes and reads its images, and sets a launch's arguments.
#include "accelerators/mps/kernels.h"

#include <sys/utsname.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "accelerators/mps/metal.h"

namespace anyaccel::mps {
namespace {

// An image is three lines of text and then the source:
//   anyaccel-metal-1
//   <device_line>
//   <the version of the language, as Metal numbers it>
constexpr std::string_view image_magic = "anyaccel-metal-1";
constexpr const char* image_format = "metal-source";

// The portable kernels need this version, and every macOS release for the M1 has it.
constexpr uint64_t default_language = language_version(2, 4);

std::string take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) {
    throw abi::Failure(AA_DATA_LOSS, "the image was not made by this driver's compiler, or it is damaged");
  }
  std::string line(text.substr(0, end));
  text.remove_prefix(end + 1);
  return line;
}

// Compiles the source. Returns null and fills `log` if it does not compile; with a warning it returns the library and
// fills `log` too.
Owned library_of(const DeviceFacts& facts, const std::string& source, uint64_t language, std::string& log) {
  static const Id options_class = api.objc_getClass("MTLCompileOptions");
  const Owned options = Owned::given(send<Id>(options_class, sel.new_object));
  if (!options) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal gave no MTLCompileOptions");
  // Fast math is off, because the optimizers promise the same bits everywhere and kernels check for NaNs.
  send(options.get(), sel.setFastMathEnabled, static_cast<signed char>(0));
  send(options.get(), sel.setLanguageVersion, language);
  Id error = nullptr;
  Owned library =
      Owned::given(send<Id>(facts.device.get(), sel.newLibraryWithSource, string_of(source), options.get(), &error));
  if (error) log = text_of(send<Id>(error, sel.localizedDescription));
  if (!library && log.empty()) log = error_text(error);
  return library;
}

// Parses "metal3.1"; returns false if it is not a version.
bool read_version(std::string_view text, uint64_t& version) {
  constexpr std::string_view head = "metal";
  if (!text.starts_with(head)) return false;
  text.remove_prefix(head.size());
  uint64_t major = 0;
  uint64_t minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || second.ptr != end) return false;
  version = language_version(major, minor);
  return true;
}

}  // namespace

std::string device_line(const DeviceFacts& facts) {
  utsname system{};
  uname(&system);
  return facts.name + ", " + facts.family + ", " + system.sysname + " " + system.release + ", " +
         std::string(image_magic);
}

abi::CompileOutput compile_source(const DeviceFacts& facts, const aa_compile& what) {
  abi::CompileOutput output;
  std::string source;
  uint64_t language = default_language;
  for (size_t i = 0; i < what.option_count; ++i) {
    const std::string_view option = what.options[i];
    if (option.starts_with("-D") && option.size() > 2) {
      const std::string_view definition = option.substr(2);
      const size_t equals = definition.find('=');
      source += "#define " + std::string(definition.substr(0, equals)) + " " +
                (equals == std::string_view::npos ? "1" : std::string(definition.substr(equals + 1))) + "\n";
    } else if (!option.starts_with("-std=") || !read_version(option.substr(5), language)) {
      output.log = "the option \"" + std::string(option) +
                   "\" is unknown; expected -DNAME, -DNAME=VALUE or -std=metalMAJOR.MINOR";
      return output;
    }
  }
  source += "#line 1 \"" + std::string(what.name) + "\"\n";
  source.append(what.source, what.source_size);
  if (source.find('\0') != std::string::npos) {
    output.log = "the source has a zero byte in it";
    return output;
  }
  const Pool pool;
  if (!library_of(facts, source, language, output.log)) return output;
  const std::string image =
      std::string(image_magic) + "\n" + device_line(facts) + "\n" + std::to_string(language) + "\n" + source;
  output.image.assign(image.begin(), image.end());
  output.format = image_format;
  output.succeeded = true;
  return output;
}

Module::Module(const DeviceFacts& facts, const aa_module_params& params) : facts_(facts) {
  if (std::string_view(params.format) != image_format) {
    throw abi::Failure(AA_INVALID_ARGUMENT, std::string("a module of format \"") + params.format +
                                                "\" was given; this driver loads \"" + image_format + "\"");
  }
  std::string_view text(static_cast<const char*>(params.image), params.size);
  if (!text.starts_with(image_magic)) {
    throw abi::Failure(AA_DATA_LOSS, "the image does not begin with \"" + std::string(image_magic) + "\"");
  }
  take_line(text);
  const std::string made_for = take_line(text);
  const std::string own = device_line(facts);
  if (made_for != own) {
    throw abi::Failure(AA_INCOMPATIBLE, "the module was compiled for another device or system: it is of \"" + made_for +
                                            "\", this is \"" + own +
                                            "\"; remove it from the cache of compiled ops to have it compiled again");
  }
  const std::string version = take_line(text);
  uint64_t language = 0;
  std::from_chars(version.data(), version.data() + version.size(), language);
  const Pool pool;
  std::string log;
  library_ = library_of(facts, std::string(text), language, log);
  if (!library_) throw abi::Failure(AA_INVALID_ARGUMENT, "Metal does not compile the module: " + log);
}

abi::Kernel* Module::kernel_get(const char* name, aa_kernel_info& info) {
  const std::lock_guard lock(mutex_);
  auto found = kernels_.find(std::string_view(name));
  if (found == kernels_.end()) {
    const Pool pool;
    const Owned function = Owned::given(send<Id>(library_.get(), sel.newFunctionWithName, string_of(name)));
    if (!function) return nullptr;
    Id error = nullptr;
    Owned pipeline = Owned::given(send<Id>(facts_.device.get(), sel.newComputePipelineState, function.get(), &error));
    if (!pipeline) {
      throw abi::Failure(AA_INTERNAL,
                         std::string("Metal makes no pipeline of the kernel ") + name + ": " + error_text(error));
    }
    const auto threads = send<uint64_t>(pipeline.get(), sel.maxTotalThreadsPerThreadgroup);
    const auto bytes = send<uint64_t>(pipeline.get(), sel.staticThreadgroupMemoryLength);
    if (bytes > static_cast<uint64_t>(facts_.threadgroup_memory)) {
      throw abi::Failure(AA_RESOURCE_EXHAUSTED, std::string("kernel ") + name + " needs " + std::to_string(bytes) +
                                                    " bytes of threadgroup memory; the device has " +
                                                    std::to_string(facts_.threadgroup_memory));
    }
    found = kernels_
                .emplace(name, Loaded{std::make_unique<Kernel>(name, std::move(pipeline), threads),
                                      static_cast<int32_t>(threads), static_cast<int32_t>(bytes)})
                .first;
  }
  info.max_threads_per_block = found->second.max_threads;
  info.static_shared_bytes = found->second.threadgroup_bytes;
  return found->second.kernel.get();
}

// ---- launches --------------------------------------------------------------------------------------------------------

void Kernel::check(const aa_launch& launch) const {
  const auto wrong = [this](const std::string& what, aa_code code = AA_INVALID_ARGUMENT) {
    throw abi::Failure(code, "kernel " + name_ + ": " + what);
  };
  if (launch.flags & AA_LAUNCH_INDIRECT) {
    wrong("an address in memory means nothing to a Metal kernel; pass it as an argument", AA_UNIMPLEMENTED);
  }
  if (launch.shared_bytes != 0) wrong("shared_bytes must be 0; Metal kernels declare their threadgroup memory");
  uint64_t threads = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0) wrong("a dimension of the grid or block is 0");
    threads *= launch.block[i];
    if (threads > max_threads_) {
      wrong("a block may have " + std::to_string(max_threads_) + " threads, more were given");
    }
  }
  if (launch.argument_count > most_arguments) {
    wrong("Metal kernels have at most " + std::to_string(most_arguments) + " arguments, " +
          std::to_string(launch.argument_count) + " were given");
  }
}

void Kernel::read_arguments(const aa_launch& launch, Id absent, Arguments& out) const {
  out.list.resize(launch.argument_count);
  out.values.clear();
  for (uint32_t i = 0; i < launch.argument_count; ++i) {
    const auto name = [&] { return "argument " + std::to_string(i) + " of kernel " + name_; };
    Argument& argument = out.list[i];
    const uint32_t size = launch.argument_sizes[i];
    if (launch.argument_kinds[i] == AA_ARGUMENT_POINTER) {
      void* pointer = nullptr;
      if (size != sizeof(pointer)) {
        throw abi::Failure(AA_INVALID_ARGUMENT,
                           name() + " is a pointer; " + std::to_string(size) + " bytes were given");
      }
      std::memcpy(&pointer, launch.arguments[i], sizeof(pointer));
      argument = {};
      if (!pointer) {
        argument.place = {absent, 0};
        continue;
      }
      const aa_memory* memory = launch.memories ? launch.memories[i] : nullptr;
      if (!memory) [[unlikely]]
        place_of(nullptr, pointer, 0, name().c_str());
      argument.place = {memory->buffer.get(),
                        static_cast<uint64_t>(static_cast<unsigned char*>(pointer) - memory->base)};
      continue;
    }
    if (size == 0 || size > most_value_bytes) {
      throw abi::Failure(AA_INVALID_ARGUMENT, name() + " has " + std::to_string(size) + " bytes; Metal takes 1 to " +
                                                  std::to_string(most_value_bytes) + " by value");
    }
    argument.place = {};
    argument.value_begin = out.values.size();
    argument.value_size = size;
    const auto* bytes = static_cast<const unsigned char*>(launch.arguments[i]);
    out.values.insert(out.values.end(), bytes, bytes + size);
  }
}

void Kernel::encode(Id encoder, const Arguments& arguments, const Size3& grid, const Size3& block) const {
  send(encoder, sel.setComputePipelineState, pipeline_.get());
  for (size_t i = 0; i < arguments.list.size(); ++i) {
    const Argument& argument = arguments.list[i];
    if (argument.value_size == 0) {
      send(encoder, sel.setBuffer, argument.place.buffer, argument.place.offset, static_cast<uint64_t>(i));
    } else {
      send(encoder, sel.setBytes, static_cast<const void*>(arguments.values.data() + argument.value_begin),
           static_cast<uint64_t>(argument.value_size), static_cast<uint64_t>(i));
    }
  }
  send(encoder, sel.dispatchThreadgroups, grid, block);
}

}  // namespace anyaccel::mps
