// Implements kernel_set.h, the portable kernels (kernels/portable) on an accelerator.
#include "ops/portable/kernel_set.h"

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/install_paths.h"
#include "base/files/trusted_path.h"
#include "base/text/text.h"
#include "ops/builders.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::ops::portable {
namespace {

constexpr const char* tuning_variable = "ANYACCEL_KERNEL_TUNING";

struct Member {
  const char* name;
  int32_t aa_kernel_tuning::*value;
};
constexpr Member members[] = {
    {"group_size", &aa_kernel_tuning::group_size},       {"lanes", &aa_kernel_tuning::lanes},
    {"subgroup_size", &aa_kernel_tuning::subgroup_size}, {"items", &aa_kernel_tuning::items},
    {"local_memory", &aa_kernel_tuning::local_memory},   {"native_f16", &aa_kernel_tuning::native_f16},
    {"native_f64", &aa_kernel_tuning::native_f64},
};

// Applies "name=number,..." to the tuning.
void override_from(const std::string& text, aa_kernel_tuning& tuning) {
  for (const std::string& item : split_list(text)) {
    const size_t equals = item.find('=');
    char* rest = nullptr;
    const long value = equals == std::string::npos ? -1 : std::strtol(item.c_str() + equals + 1, &rest, 10);
    const Member* found = nullptr;
    for (const Member& member : members) {
      if (item.substr(0, equals) == member.name) found = &member;
    }
    if (!found || value < 0 || value > INT32_MAX || !rest || *rest) {
      throw InvalidArgument(std::string(tuning_variable) + " has \"" + item +
                            "\"; expected members of aa_kernel_tuning as in group_size=64,lanes=16");
    }
    tuning.*(found->value) = static_cast<int32_t>(value);
  }
}

bool power_of_two(int32_t value) { return value > 0 && (value & (value - 1)) == 0; }

void check_tuning(const aa_kernel_tuning& t, const std::string& who) {
  if (power_of_two(t.group_size) && power_of_two(t.lanes) && t.lanes <= t.group_size && t.items > 0 &&
      (t.subgroup_size == 0 || t.subgroup_size == t.lanes) && t.local_memory >= 0) {
    return;
  }
  throw InvalidArgument("the kernel tuning of " + who + " is group_size " + std::to_string(t.group_size) + ", lanes " +
                        std::to_string(t.lanes) + ", subgroup_size " + std::to_string(t.subgroup_size) + ", items " +
                        std::to_string(t.items) + ", local_memory " + std::to_string(t.local_memory) +
                        "; expected powers of two with lanes <= group_size, subgroup_size 0 or equal to lanes, and "
                        "items above 0 (see aa_kernel_tuning)");
}

namespace fs = std::filesystem;

fs::path portable_folder() { return fs::path(bundled_sources_dir()).parent_path() / "portable"; }

// A program that does not find its package would run portable ops on the CPU without saying why.
void note_missing_folder(const std::string& driver) {
  const std::string missing = missing_package();
  if (missing.empty()) return;
  static std::once_flag once;
  std::call_once(once, [&] {
    log_warning(driver +
                ": there are no sources of portable kernels, so their ops run on the CPU, or fail with "
                "ANYACCEL_FALLBACK=error: " +
                missing);
  });
}

class PortableBuilder final : public DeviceOpBuilder {
 public:
  PortableBuilder(DriverAccelerator& accelerator, std::string file, std::vector<std::string> options)
      : DeviceOpBuilder("Portable_" + fs::path(file).stem().string() + "Builder", accelerator),
        dialect_(portable_dialect(accelerator)),
        file_(std::move(file)),
        options_(std::move(options)) {}

  std::vector<DeviceSource> device_sources() const override {
    const std::string language =
        dialect_.language.empty() ? "the dialects of " + folder() + "/dialects" : dialect_.language;
    return {{language, file_}};
  }
  std::vector<std::string> include_paths() const override { return {dialect_.folder}; }
  std::vector<std::string> compile_options() const override { return options_; }
  std::string folder() const override { return portable_folder().string(); }

 private:
  Dialect dialect_;
  std::string file_;
  std::vector<std::string> options_;
};

constexpr const char* element_names[] = {"f32", "bf16", "f16"};
const char* name_of(Element element) { return element_names[static_cast<size_t>(element)]; }

}  // namespace

Element element_of(int32_t dtype) {
  return dtype == AA_DTYPE_F32 ? Element::F32 : dtype == AA_DTYPE_BF16 ? Element::BF16 : Element::F16;
}

aa_kernel_tuning kernel_tuning(DriverAccelerator& accelerator, int device) {
  aa_kernel_tuning tuning{};
  tuning.struct_size = sizeof(tuning);
  tuning.group_size = tuning.lanes = tuning.items = 1;
  if (const auto* compiler = static_cast<const abi::Calls<aa_compiler_table>*>(
          accelerator.extension(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION))) {
    aa_status* status = compiler->kernel_tuning(accelerator.device_handle(device), &tuning);
    const bool absent = status && status_code(status) == AA_UNIMPLEMENTED;
    if (absent) {
      release_status(status);
    } else {
      check(status, "compiler.kernel_tuning", accelerator.driver().name);
    }
  }
  if (const char* text = std::getenv(tuning_variable)) override_from(text, tuning);
  check_tuning(tuning, accelerator.device_name(device));
  return tuning;
}

void check_tuning_variable() {
  aa_kernel_tuning unused{};
  if (const char* text = std::getenv(tuning_variable)) override_from(text, unused);
}

Tunings::Tunings(DriverAccelerator& accelerator)
    : accelerator_(accelerator),
      known_(static_cast<size_t>(accelerator.device_count())),
      tunings_(static_cast<size_t>(accelerator.device_count())) {}

const aa_kernel_tuning& Tunings::of(int device) {
  const auto i = static_cast<size_t>(device);
  std::call_once(known_[i], [&] { tunings_[i] = kernel_tuning(accelerator_, device); });
  return tunings_[i];
}

Dialect portable_dialect(DriverAccelerator& accelerator) {
  const auto* compiler = static_cast<const abi::Calls<aa_compiler_table>*>(
      accelerator.extension(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION));
  if (!compiler) return {};
  aa_device* device = accelerator.device_handle();
  const char* driver = accelerator.driver().name;
  const char* languages = "";
  check(compiler->languages(device, &languages), "compiler.languages", driver);
  for (const std::string& language : split_list(languages)) {
    const char* own = "";
    StatusRef status(compiler->dialect(device, language.c_str(), &own));
    if (status.code() != AA_UNIMPLEMENTED) check(status.release(), "compiler.dialect", driver);
    const bool is_own = own && *own;
    const fs::path folder = is_own ? fs::path(own) : portable_folder() / "dialects" / language;
    const TrustedPath header = open_trusted_file(folder / "language.h", Trust::program);
    if (is_own && !header.ok()) {
      throw UnavailableError(std::string(driver) + " names " + folder.string() + " as the folder of its dialect of " +
                             language + ", which cannot be used: " +
                             (header.state == TrustedPath::State::missing ? "there is no language.h in it"
                                                                          : header.reason + ". " + header.cure));
    }
    std::error_code error;
    if (is_own || fs::is_regular_file(folder / "language.h", error)) return {language, folder.string()};
  }
  if (*languages) note_missing_folder(driver);
  return {};
}

std::vector<std::string> dialect_options(const aa_kernel_tuning& tuning) {
  const auto define = [](const char* name, int32_t value) {
    return std::string("-D") + name + "=" + std::to_string(value);
  };
  return {define("AA_GROUP_SIZE", tuning.group_size),    define("AA_LANES", tuning.lanes),
          define("AA_SUBGROUP", tuning.subgroup_size),   define("AA_ITEMS", tuning.items),
          define("AA_LOCAL_BYTES", tuning.local_memory), define("AA_HAS_F16", tuning.native_f16),
          define("AA_HAS_F64", tuning.native_f64)};
}

KernelSet::KernelSet(DriverAccelerator& accelerator, std::string file, std::vector<std::string> kernels, Types types,
                     std::string block)
    : accelerator_(accelerator),
      file_(std::move(file)),
      kernels_(std::move(kernels)),
      types_(types),
      block_(std::move(block)),
      tunings_(accelerator),
      slots_(static_cast<size_t>(accelerator.device_count()) * element_count * element_count * kernels_.size()) {}

const DeviceKernel& KernelSet::load(size_t kernel, int device, Element x, Element w) {
  std::lock_guard lock(mutex_);
  const size_t slot = slot_of(kernel, device, x, w);
  if (const DeviceKernel* found = slots_[slot].load(std::memory_order_acquire)) return *found;

  std::vector<std::string> options = dialect_options(tuning(device));
  std::string suffix;
  if (types_ != Types::none) {
    options.push_back(std::string("-DAA_X=") + name_of(x));
    suffix = std::string("_") + name_of(x);
  }
  if (types_ == Types::xw) {
    options.push_back(std::string("-DAA_W=") + name_of(w));
    suffix += std::string("_") + name_of(w);
  }
  if (!block_.empty()) {
    options.push_back("-DAA_BLOCK=" + block_);
    suffix += "_" + block_;
  }
  std::string key;
  for (const std::string& option : options) key += option + " ";
  std::shared_ptr<DeviceOpLibrary>& library = libraries_[key];
  if (!library) library = PortableBuilder(accelerator_, file_, options).load_as<DeviceOpLibrary>();
  loaded_.push_back(std::make_unique<const DeviceKernel>(library->kernel(kernels_[kernel] + suffix, device)));
  slots_[slot].store(loaded_.back().get(), std::memory_order_release);
  return *loaded_.back();
}

}  // namespace anyaccel::ops::portable
