// Saves and loads the state of training.
#include "anyaccel/nn/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <system_error>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::nn {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

void append(llm::SafetensorsWriter& writer, const Tensor& host) {
  writer.append({static_cast<const std::byte*>(host.data()), host.nbytes()});
}

Tensor on_host(const Tensor& tensor) { return tensor.to(Device{}).contiguous(); }

// Writes a folder's entries (the names of its files) to the disk.
void sync_folder(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error("cannot save the checkpoint '" + path.string() + "': " + what, AA_UNAVAILABLE);
}

// Finds a tensor of a file; it must have this shape and a float type.
const llm::TensorInfo& find_tensor(const llm::WeightFile& file, const std::string& name, const Shape& shape,
                                   bool only_f32) {
  const llm::TensorInfo* found = file.find(name);
  if (!found) throw CheckpointError(file.path().string() + ": has no tensor " + name);
  const Shape stored{std::span<const int64_t>(found->shape)};
  if (!(stored == shape)) {
    throw CheckpointError(file.path().string() + ": tensor " + name + " has the shape " + stored.to_string() +
                          ", expected " + shape.to_string());
  }
  const bool good =
      found->dtype == DType::F32 || (!only_f32 && (found->dtype == DType::BF16 || found->dtype == DType::F16));
  if (!good || found->format) {
    throw CheckpointError(file.path().string() + ": tensor " + name + " has the dtype " +
                          std::string(dtype_name(found->dtype)) + (found->format ? ", quantized" : "") +
                          ", expected float32" + (only_f32 ? "" : ", bfloat16 or float16"));
  }
  return *found;
}

Tensor read_tensor(const llm::WeightFile& file, const llm::TensorInfo& info) {
  const Tensor tensor = Tensor::empty(Shape(std::span<const int64_t>(info.shape)), info.dtype);
  file.read(info.offset, {static_cast<std::byte*>(tensor.data()), tensor.nbytes()});
  return tensor;
}

template <class Number>
Number number_of(const llm::SafetensorsFile& file, const char* key, std::optional<Number> missing = std::nullopt) {
  for (const auto& [name, text] : file.metadata()) {
    if (name != key) continue;
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && !(value < Number{})) return value;
    throw CheckpointError(file.path().string() + ": metadata " + key + " is '" + text +
                          "', expected a number of 0 or more");
  }
  if (missing) return *missing;
  throw CheckpointError(file.path().string() + ": has no metadata " + key + "; expected a file of training's state");
}

std::string text_of(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

// The name under which a folder is written: with as much of its own as leaves room for the ending, so that two folders whose
// names share that much must not be written at once. A name that the system
// does not allow stays too long, so that nothing is written for it.
fs::path part_of(const fs::path& folder) {
  static constexpr std::string_view kEnd = ".part";
  std::string name = folder.filename().string();
  if (name.size() <= NAME_MAX && name.size() + kEnd.size() > NAME_MAX) {
    size_t length = NAME_MAX - kEnd.size();
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0u) == 0x80u) --length;  // whole characters
    name.resize(length);
  }
  return folder.parent_path() / (name += kEnd);
}

constexpr char kNote[] = "note.";
constexpr char kModelFile[] = "model.safetensors";
constexpr char kTrainingFile[] = "training.safetensors";

}  // namespace

void save_checkpoint(const fs::path& folder, Parameters& parameters, Optimizer& optimizer, const TrainingState& state,
                     std::span<const std::pair<std::string, std::string>> files) {
  // load_checkpoint() would refuse them, when the run that they came from has ended.
  if (state.losses.size() != static_cast<uint64_t>(state.steps_done)) {
    throw InvalidArgument("nn::save_checkpoint: the state has " + std::to_string(state.losses.size()) +
                          " losses; expected one for each of the " + std::to_string(state.steps_done) + " steps");
  }
  // With a slash at its end the name of the folder would be that of a file in it.
  const fs::path place = folder.has_filename() ? folder : folder.parent_path();
  std::error_code error;
  // What is replaced is deleted.
  if (fs::exists(place, error) && !fs::exists(place / kTrainingFile, error) &&
      !(fs::is_directory(place, error) && fs::is_empty(place, error))) {
    fail(folder,
         "it exists and is not a checkpoint, and saving would delete what it contains; expected a checkpoint, an empty "
         "folder, or a new name");
  }
  const fs::path part = part_of(place);
  fs::remove_all(part, error);
  if (!fs::create_directory(part, error)) fail(folder, error ? error.message() : part.string() + " exists");
  try {
    std::vector<llm::TensorSpec> specs;
    for (const Parameter& p : parameters.all()) specs.push_back({p.name, DType::F32, dims_of(p.shape)});
    llm::SafetensorsWriter model(part / kModelFile, specs, {{"format", "pt"}});
    for (const Parameter& p : parameters.all()) append(model, on_host(p.master));
    model.finish();

    specs = {{"losses", DType::F32, {static_cast<int64_t>(state.losses.size())}}};
    for (size_t i = 0; i < optimizer.state_count(); ++i) {
      specs.push_back({optimizer.state_name(i), DType::F32, dims_of(optimizer.state_of(i).shape)});
    }
    llm::SafetensorsMetadata metadata = {{"steps_done", std::to_string(state.steps_done)},
                                         {"loss_scale", text_of(state.loss_scale)},
                                         {"good_steps", std::to_string(state.good_steps)},
                                         {"skipped_steps", std::to_string(state.skipped_steps)},
                                         {"generator_offset", std::to_string(state.generator_offset)}};
    for (const auto& [name, text] : state.notes) metadata.emplace_back(kNote + name, text);
    llm::SafetensorsWriter training(part / kTrainingFile, specs, metadata);
    training.append(std::as_bytes(std::span(state.losses)));
    for (size_t i = 0; i < optimizer.state_count(); ++i) append(training, optimizer.state(i).contiguous());
    training.finish();

    for (const auto& [name, text] : files) {
      const std::string reason = write_output_file(part / name, text);
      if (!reason.empty()) fail(folder, name + ": " + reason);
    }
    sync_folder(part);
    // If the folder exists already, the two exchange names, so that the name always belongs to a complete checkpoint.
    const bool replaces = fs::exists(place);
    if (renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, place.c_str(), replaces ? RENAME_EXCHANGE : 0) != 0) {
      fail(folder, std::strerror(errno));
    }
    sync_folder(place.parent_path().empty() ? fs::path(".") : place.parent_path());
    if (replaces) fs::remove_all(part, error);
  } catch (...) {
    fs::remove_all(part, error);
    throw;
  }
}

TrainingState load_checkpoint(const fs::path& folder, Parameters& parameters, Optimizer& optimizer) {
  const auto model = llm::SafetensorsFile::open(folder / kModelFile, llm::FileAccess::Read);
  const auto training = llm::SafetensorsFile::open(folder / kTrainingFile, llm::FileAccess::Read);
  TrainingState state;
  state.steps_done = number_of<int64_t>(*training, "steps_done");
  state.loss_scale = number_of<double>(*training, "loss_scale");
  state.good_steps = number_of<int64_t>(*training, "good_steps");
  state.skipped_steps = number_of<int64_t>(*training, "skipped_steps", 0);  // absent from older files
  state.generator_offset = number_of<uint64_t>(*training, "generator_offset");
  for (const auto& [name, text] : training->metadata()) {
    if (name.rfind(kNote, 0) == 0) state.notes[name.substr(sizeof kNote - 1)] = text;
  }
  std::set<std::string> expected = {"losses"};
  for (const Parameter& p : parameters.all()) find_tensor(*model, p.name, p.shape, true);
  if (model->tensors().size() != parameters.all().size()) {
    throw CheckpointError(model->path().string() + ": has " + std::to_string(model->tensors().size()) +
                          " tensors, expected the model's " + std::to_string(parameters.all().size()));
  }
  for (size_t i = 0; i < optimizer.state_count(); ++i) {
    find_tensor(*training, optimizer.state_name(i), optimizer.state_of(i).shape, true);
    expected.insert(optimizer.state_name(i));
  }
  for (const llm::TensorInfo& tensor : training->tensors()) {
    if (expected.count(tensor.name)) continue;
    throw CheckpointError(training->path().string() + ": tensor " + tensor.name +
                          " is not of this optimizer; continue with the one that wrote it");
  }
  const llm::TensorInfo& losses = find_tensor(*training, "losses", {state.steps_done}, true);
  state.losses = read_tensor(*training, losses).to_vector<float>();
  for (const Parameter& p : parameters.all()) p.master.copy_from(read_tensor(*model, *model->find(p.name)));
  for (size_t i = 0; i < optimizer.state_count(); ++i) {
    optimizer.set_state(i, read_tensor(*training, *training->find(optimizer.state_name(i))));
  }
  parameters.store_weights();
  return state;
}

void load_weights(const fs::path& model, Parameters& parameters) {
  const llm::Checkpoint checkpoint = llm::Checkpoint::open(model, llm::FileAccess::Read);
  const auto file_of = [&](const Parameter& p) -> const llm::WeightFile& {
    return *checkpoint.files()[checkpoint.at(p.name).file];
  };
  for (const Parameter& p : parameters.all()) find_tensor(file_of(p), p.name, p.shape, false);
  if (checkpoint.names().size() != parameters.all().size()) {
    throw CheckpointError(model.string() + ": has " + std::to_string(checkpoint.names().size()) +
                          " tensors, expected the model's " + std::to_string(parameters.all().size()));
  }
  for (const Parameter& p : parameters.all()) {
    const llm::WeightFile& file = file_of(p);
    p.master.copy_from(read_tensor(file, *file.find(p.name)).to(DType::F32));
  }
  parameters.store_weights();
}

}  // namespace anyaccel::nn
