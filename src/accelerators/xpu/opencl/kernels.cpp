// Programs and kernels.
#include "accelerators/xpu/opencl/kernels.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace anyaccel::xpu::opencl {
namespace {

// An image is lines of text and then the driver's binary:
//   anyaccel-opencl-2
//   <device_line>
//   kernel <name> <one letter an argument, or ->      (for each kernel)
//   binary <bytes>
// Argument kinds are stored because a program that was loaded from a binary need not report them. If a binary is
// expensive (binaries_are_expensive below), the program's source is stored instead, and the last lines are
//   options <compiler options>
//   source <bytes>
constexpr std::string_view image_magic = "anyaccel-opencl-2";

struct ImageKernel {
  std::string name;
  std::string kinds;
};

struct Image {
  std::string device;
  std::vector<ImageKernel> kernels;
  std::string options;     // of a source
  bool is_source = false;  // else code is the driver's binary
  std::string_view code;
};

// PoCL compiles every kernel of a program for groups of any size when it is asked for the binary, and again for the group's
// own size at the first launch. It keeps what it compiled, from a source too, in a cache of its own.
bool binaries_are_expensive(const DeviceFacts& facts) { return facts.platform == "Portable Computing Language"; }

[[noreturn]] void damaged(const std::string& why) {
  throw abi::Failure(AA_DATA_LOSS, "the image was not made by this driver's compiler, or it is damaged: " + why);
}

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) damaged("it ends within its head");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

Image parse_image(std::string_view text) {
  if (!text.starts_with(image_magic)) damaged("it does not begin with \"" + std::string(image_magic) + "\"");
  take_line(text);
  Image image;
  image.device = take_line(text);
  while (true) {
    std::string_view line = take_line(text);
    if (line.starts_with("kernel ")) {
      line.remove_prefix(7);
      const size_t space = line.find(' ');
      if (space == std::string_view::npos) damaged("a kernel without a list of arguments");
      const std::string_view kinds = line.substr(space + 1);
      image.kernels.push_back({std::string(line.substr(0, space)), kinds == "-" ? "" : std::string(kinds)});
    } else if (line.starts_with("options ")) {
      image.options = line.substr(8);
    } else if (line.starts_with("binary ") || line.starts_with("source ")) {
      size_t bytes = 0;
      std::from_chars(line.data() + 7, line.data() + line.size(), bytes);
      if (bytes != text.size()) {
        damaged("it has " + std::to_string(text.size()) + " bytes of code and says " + std::string(line.substr(7)));
      }
      image.is_source = line.starts_with("source ");
      image.code = text;
      return image;
    } else {
      damaged("an unknown line");
    }
  }
}

std::string argument_kinds(const Api& api, cl_kernel kernel) {
  cl_uint count = 0;
  check(api.GetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr), "clGetKernelInfo");
  std::string kinds;
  for (cl_uint i = 0; i < count; ++i) {
    cl_uint where = 0;
    check(api.GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(where), &where, nullptr),
          "clGetKernelArgInfo");
    const bool pointer = where == CL_KERNEL_ARG_ADDRESS_GLOBAL || where == CL_KERNEL_ARG_ADDRESS_CONSTANT;
    kinds += static_cast<char>(pointer ? ArgumentKind::pointer : ArgumentKind::value);
  }
  return kinds;
}

OwnedKernel create_kernel(const Api& api, cl_program program, const std::string& name) {
  cl_int error = CL_SUCCESS;
  OwnedKernel kernel(api, api.CreateKernel(program, name.c_str(), &error));
  check(error, "clCreateKernel of " + name);
  return kernel;
}

std::string build_log(const DeviceFacts& facts, cl_program program) {
  return text_of([&](size_t size, void* value, size_t* out) {
    return facts.api.GetProgramBuildInfo(program, facts.id, CL_PROGRAM_BUILD_LOG, size, value, out);
  });
}

// `source` and `options` are what the program was built from.
std::vector<unsigned char> make_image(const DeviceFacts& facts, cl_program program, std::string_view source,
                                      const std::string& options) {
  const Api& api = facts.api;
  std::string head = std::string(image_magic) + "\n" + device_line(facts) + "\n";
  const std::string names = text_of([&](size_t size, void* value, size_t* out) {
    return api.GetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, size, value, out);
  });
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(';', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const std::string kinds = argument_kinds(api, create_kernel(api, program, name).get());
    head += "kernel " + name + " " + (kinds.empty() ? "-" : kinds) + "\n";
    begin = end + 1;
  }
  if (binaries_are_expensive(facts)) {
    head += "options " + options + "\nsource " + std::to_string(source.size()) + "\n";
    head += source;
    return {head.begin(), head.end()};
  }
  size_t size = 0;
  check(api.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr), "clGetProgramInfo");
  head += "binary " + std::to_string(size) + "\n";
  std::vector<unsigned char> image(head.size() + size);
  std::memcpy(image.data(), head.data(), head.size());
  unsigned char* binary = image.data() + head.size();
  check(api.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), static_cast<void*>(&binary), nullptr),
        "clGetProgramInfo");
  return image;
}

}  // namespace

std::string device_line(const DeviceFacts& facts) {
  std::string line = facts.platform + ", " + facts.name + ", " + facts.version + ", driver " + facts.driver_version +
                     ", " + std::string(image_magic);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

abi::CompileOutput compile_program(const DeviceFacts& facts, cl_context context, const char* source, size_t source_size,
                                   const char* const* options, size_t option_count) {
  std::string all = "-cl-kernel-arg-info";
  // The optimizers promise the same bits everywhere.
  if (facts.exact_division) all += " -cl-fp32-correctly-rounded-divide-sqrt";
  bool chosen = false;
  for (size_t i = 0; i < option_count; ++i) {
    chosen = chosen || std::string_view(options[i]).starts_with("-cl-std=");
    all += std::string(" ") + options[i];
  }
  // Sub-groups came with 2.0, whose other features 3.0 made optional; otherwise the version that every driver has.
  if (!chosen && !facts.subgroup) all += " -cl-std=CL1.2";
  if (!chosen && facts.subgroup) all += facts.version.starts_with("OpenCL 2") ? " -cl-std=CL2.0" : " -cl-std=CL3.0";

  const Api& api = facts.api;
  cl_int error = CL_SUCCESS;
  const OwnedProgram program(api, api.CreateProgramWithSource(context, 1, &source, &source_size, &error));
  check(error, "clCreateProgramWithSource");
  error = api.BuildProgram(program.get(), 1, &facts.id, all.c_str(), nullptr, nullptr);
  abi::CompileOutput output;
  output.log = build_log(facts, program.get());
  if (error == CL_BUILD_PROGRAM_FAILURE) {
    if (output.log.empty()) output.log = "the compiler gave no message; options: " + all;
    return output;
  }
  check(error, "clBuildProgram with options " + all);
  output.image = make_image(facts, program.get(), {source, source_size}, all);
  output.format = image_format;
  output.succeeded = true;
  return output;
}

// ---- loaded ----------------------------------------------------------------------------------------------------------

Kernel::Kernel(const Api& api, cl_program program, std::string name, std::string kinds)
    : api_(api),
      program_(program),
      name_(std::move(name)),
      kinds_(std::move(kinds)),
      kernel_(create_kernel(api, program, name_)) {}

void Kernel::set_arguments(cl_kernel kernel, const aa_launch& launch) const {
  if (launch.argument_count != kinds_.size()) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "kernel " + name_ + " takes " + std::to_string(kinds_.size()) +
                                                " arguments, " + std::to_string(launch.argument_count) + " were given");
  }
  for (cl_uint i = 0; i < launch.argument_count; ++i) {
    cl_int error = CL_SUCCESS;
    if (kinds_[i] == static_cast<char>(ArgumentKind::pointer)) {
      const void* pointer = nullptr;
      if (launch.argument_sizes[i] != sizeof(pointer)) {
        throw abi::Failure(AA_INVALID_ARGUMENT, "argument " + std::to_string(i) + " of kernel " + name_ +
                                                    " is a pointer; " + std::to_string(launch.argument_sizes[i]) +
                                                    " bytes were given");
      }
      std::memcpy(&pointer, launch.arguments[i], sizeof(pointer));
      error = api_.SetKernelArgSVMPointer(kernel, i, pointer);
    } else {
      error = api_.SetKernelArg(kernel, i, launch.argument_sizes[i], launch.arguments[i]);
    }
    if (error != CL_SUCCESS) [[unlikely]] {
      check(error, "argument " + std::to_string(i) + " of kernel " + name_ + " (" +
                       std::to_string(launch.argument_sizes[i]) + " bytes)");
    }
  }
}

OwnedKernel Kernel::bind(const aa_launch& launch) const {
  OwnedKernel own = create_kernel(api_, program_, name_);
  set_arguments(own.get(), launch);
  return own;
}

Module::Module(const DeviceFacts& facts, cl_context context, const void* image, size_t size, const char* format)
    : facts_(facts) {
  if (std::string_view(format) != image_format) {
    throw abi::Failure(AA_INVALID_ARGUMENT, std::string("a module of format \"") + format +
                                                "\" was given; this driver loads \"" + image_format + "\"");
  }
  const Image parsed = parse_image({static_cast<const char*>(image), size});
  const std::string own = device_line(facts);
  if (parsed.device != own) {
    throw abi::Failure(AA_INCOMPATIBLE, "the module was compiled for another device or driver version: it is of \"" +
                                            parsed.device + "\", this device is \"" + own +
                                            "\"; remove it from the cache of compiled ops to have it compiled again");
  }
  const Api& api = facts.api;
  const char* code = parsed.code.data();
  const size_t code_size = parsed.code.size();
  cl_int error = CL_SUCCESS;
  if (parsed.is_source) {
    program_ = OwnedProgram(api, api.CreateProgramWithSource(context, 1, &code, &code_size, &error));
    check(error, "clCreateProgramWithSource");
  } else {
    const auto* binary = reinterpret_cast<const unsigned char*>(code);
    cl_int accepted = CL_SUCCESS;
    program_ =
        OwnedProgram(api, api.CreateProgramWithBinary(context, 1, &facts.id, &code_size, &binary, &accepted, &error));
    check(accepted, "clCreateProgramWithBinary");
    check(error, "clCreateProgramWithBinary");
  }
  error = api.BuildProgram(program_.get(), 1, &facts.id, parsed.options.c_str(), nullptr, nullptr);
  if (error != CL_SUCCESS) check(error, "clBuildProgram of an image: " + build_log(facts, program_.get()));
  for (const ImageKernel& kernel : parsed.kernels) {
    kernels_.push_back(std::make_unique<Kernel>(api, program_.get(), kernel.name, kernel.kinds));
  }
}

abi::Kernel* Module::kernel_get(const char* name, aa_kernel_info& info) {
  const auto found =
      std::find_if(kernels_.begin(), kernels_.end(), [&](const auto& kernel) { return kernel->name() == name; });
  if (found == kernels_.end()) return nullptr;
  Kernel& kernel = **found;
  const Api& api = facts_.api;
  size_t group = 0;
  cl_ulong local = 0;
  check(api.GetKernelWorkGroupInfo(kernel.get(), facts_.id, CL_KERNEL_WORK_GROUP_SIZE, sizeof(group), &group, nullptr),
        "clGetKernelWorkGroupInfo");
  check(api.GetKernelWorkGroupInfo(kernel.get(), facts_.id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(local), &local, nullptr),
        "clGetKernelWorkGroupInfo");
  if (local > static_cast<cl_ulong>(facts_.local_memory)) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "kernel " + kernel.name() + " needs " + std::to_string(local) +
                                                  " bytes of local memory; the device has " +
                                                  std::to_string(facts_.local_memory));
  }
  info.max_threads_per_block = static_cast<int32_t>(group);
  info.static_shared_bytes = static_cast<int32_t>(local);
  info.argument_count = static_cast<int32_t>(kernel.argument_count());
  return &kernel;
}

}  // namespace anyaccel::xpu::opencl
