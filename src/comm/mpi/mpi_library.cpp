// Finds the machine's MPI, compiles against it, and starts it once per process.
#include "comm/mpi/mpi_library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "base/files/install_paths.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"
#include "base/process/toolchain.h"

namespace anyaccel::comm {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// kernels/host/mpi_messages.cpp with the flags of one MPI's compiler command. They and that command's file are part of
// the cache key, so every MPI of a machine has its own library in the cache.
class MpiMessagesBuilder final : public HostOpBuilder {
 public:
  explicit MpiMessagesBuilder(const std::string& compiler) : HostOpBuilder("MpiMessagesBuilder") {
    const ProcessResult shown = run_program({compiler, "-show"});
    if (!shown.ok()) {
      throw UnavailableError(compiler + " -show, which tells how to compile for its MPI, failed: " + shown.output);
    }
    std::vector<std::string> words = split_words(shown.output, compiler + " -show");
    for (size_t i = 1; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word.starts_with("-I") || word.starts_with("-D")) compile_.push_back(word);
      if (word == "-isystem" && i + 1 < words.size()) compile_.insert(compile_.end(), {word, words[i + 1]});
      const bool file = word.find(".so") != std::string::npos || word.ends_with(".a");
      if (word.starts_with("-L") || word.starts_with("-l") || word.starts_with("-Wl,") || (file && word[0] != '-')) {
        link_.push_back(word);
      }
      if (word.starts_with("-L")) link_.push_back("-Wl,-rpath," + word.substr(2));
    }
    compile_.push_back("-DAA_MPI_COMPILER=\"" + compiler_identity(compiler) + "\"");
    // The C interface only: the C++ interface needs a separate library.
    compile_.insert(compile_.end(), {"-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"});
  }
  std::vector<std::string> sources() const override { return {"mpi_messages.cpp"}; }
  std::string folder() const override { return install_kernels_dir() + "/host"; }
  std::vector<std::string> cxx_args() const override {
    std::vector<std::string> flags = HostOpBuilder::cxx_args();
    flags.insert(flags.end(), compile_.begin(), compile_.end());
    return flags;
  }
  std::vector<std::string> extra_ldflags() const override { return link_; }

 private:
  std::vector<std::string> compile_, link_;
};

void (*finalize_mpi)() = nullptr;
std::mutex one_thread;

// A launcher treats a process that ends without MPI_Finalize as failed; and MPI_Finalize waits for all others, which a
// failing process must not do.
void at_exit(int status, void*) {
  if (status == 0 && finalize_mpi) finalize_mpi();
}

std::unique_ptr<MpiLibrary> load() {
  // The environment is read before MPI starts, because an Open MPI without a launcher sets variables of PMIx itself.
  const MpiLauncher launcher = mpi_launcher();
  const std::string compiler = mpi_compiler(launcher);
  MpiMessagesBuilder builder(compiler);
  const auto code = builder.load_as<HostOpLibrary>();
  auto library = std::make_unique<MpiLibrary>();
  library->launcher = launcher;
  library->group_create =
      code->function<std::remove_pointer_t<decltype(MpiLibrary::group_create)>>("aa_mpi_group_create");
  library->group_forget =
      code->function<std::remove_pointer_t<decltype(MpiLibrary::group_forget)>>("aa_mpi_group_forget");
  library->send = code->function<std::remove_pointer_t<decltype(MpiLibrary::send)>>("aa_mpi_send");
  library->receive = code->function<std::remove_pointer_t<decltype(MpiLibrary::receive)>>("aa_mpi_receive");
  library->test = code->function<std::remove_pointer_t<decltype(MpiLibrary::test)>>("aa_mpi_test");
  library->cancel = code->function<std::remove_pointer_t<decltype(MpiLibrary::cancel)>>("aa_mpi_cancel");
  library->release = code->function<std::remove_pointer_t<decltype(MpiLibrary::release)>>("aa_mpi_release");

  int started = 0;
  aa_mpi_words words{};
  if (code->function<int(aa_mpi_world*, int*, aa_mpi_words*)>("aa_mpi_start")(&library->world, &started, &words)) {
    throw CommunicationError("MPI (" + compiler + ") does not start: " + words.text);
  }
  std::string name = library->world.library;
  name.resize(std::min(name.find(','), name.size()));
  std::replace(name.begin(), name.end(), '\t', ' ');
  library->description = name + ", built with " + compiler;
  if (started) {
    finalize_mpi = code->function<void()>("aa_mpi_finalize");
    on_exit(at_exit, nullptr);
  }
  return library;
}

}  // namespace

MpiLauncher mpi_launcher() {
  // Intel MPI and MVAPICH set PMI's variables as well.
  static constexpr struct {
    const char *variable, *mpi;
    bool counts;
  } signs[] = {
      {"OMPI_COMM_WORLD_SIZE", "Open MPI", true},
      {"I_MPI_MPIRUN", "Intel MPI", false},
      {"MV2_COMM_WORLD_SIZE", "MVAPICH", true},
      {"PMI_SIZE", "MPICH", true},
      {"PMI_FD", "MPICH", false},
      {"PMIX_NAMESPACE", "PMIx", false},
  };
  MpiLauncher launcher;
  for (const auto& sign : signs) {
    const std::string value = variable(sign.variable);
    if (value.empty()) continue;
    launcher.mpi = sign.mpi;
    launcher.evidence = std::string(sign.variable) + "=" + value;
    launcher.size = std::atoi(variable(sign.counts ? sign.variable : "PMI_SIZE").c_str());
    break;
  }
  return launcher;
}

std::string mpi_compiler(const MpiLauncher& launcher) {
  if (const std::string asked = variable("MPICC"); !asked.empty()) {
    if (find_program(asked).empty()) {
      throw UnavailableError("MPICC=" + asked +
                             " names no program that can be executed; set it to an MPI's compiler "
                             "command or unset it");
    }
    return asked;
  }
  std::vector<const char*> names = {"mpicc", "mpicc.openmpi", "mpicc.mpich"};
  if (launcher.mpi == "Open MPI") names = {"mpicc.openmpi", "mpicc"};
  if (launcher.mpi == "MPICH") names = {"mpicc.mpich", "mpicc"};
  std::string text;
  for (const char* name : names) {
    if (!find_program(name).empty()) return name;
    text += std::string(text.empty() ? "" : ", ") + name;
  }
  throw UnavailableError("the backend mpi needs an MPI's compiler command, and PATH has none of: " + text +
                         " (Debian: apt-get install libopenmpi-dev openmpi-bin, or libmpich-dev mpich)");
}

const MpiLibrary& MpiLibrary::get() {
  static const std::unique_ptr<MpiLibrary> library = load();
  return *library;
}

std::unique_lock<std::mutex> MpiLibrary::guard() const {
  return world.several_threads ? std::unique_lock<std::mutex>() : std::unique_lock(one_thread);
}

}  // namespace anyaccel::comm
