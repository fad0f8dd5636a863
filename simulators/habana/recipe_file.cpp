// Recipes of the simulated libSynapse.so in files: synRecipeSerialize and synRecipeDeSerialize, whose prototypes are those of the
// published source. The layout is the simulator's own. A file that is none of its is refused; what the real library makes of one that
// is damaged is not known, and a program has to know by itself.
#include <fstream>
#include <iterator>

#include "simulators/habana/graph.h"
#include "simulators/habana/habana.h"

namespace sim::habana {

using namespace queue_face;  // NOLINT: the functions below are a layer over it

namespace {

constexpr char kMagic[] = "simulated recipe 2\n";

class Writer {
 public:
  void number(std::uint64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <typename Bytes>
  void bytes(const Bytes& value) {
    number(value.size());
    text_.append(value.data(), value.size());
  }
  void numbers(const auto& values) {
    number(values.size());
    for (const auto value : values) number(value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_ = kMagic;
};

// Throws where the text ends too early.
struct CutShort {};
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text), at_(sizeof kMagic - 1) {
    if (text.compare(0, at_, kMagic) != 0) throw CutShort{};
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    take(sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string bytes() { return take(number()); }
  template <typename Values>
  Values numbers() {
    Values values;
    for (std::uint64_t left = number(); left > 0; --left) values.push_back(number());
    return values;
  }

 private:
  std::string take(std::uint64_t count) {
    if (count > text_.size() - at_) throw CutShort{};
    at_ += count;
    return text_.substr(at_ - count, count);
  }

  const std::string& text_;
  std::size_t at_;
};

}  // namespace

FACE_FUNCTION(synRecipeSerialize, Need::started, (Handle recipe, const char* file), (recipe, file)) {
  FACE_REQUIRE(file != nullptr, kInvalidArgument, "bad-argument", "the file's name is null");
  std::shared_ptr<SynapseRecipe> object;
  FACE_TRY(find(recipe, "recipe", &object));
  Writer writer;
  writer.number(object->workspace);
  writer.number(object->tensors.size());
  for (const TensorFacts& tensor : object->tensors) {
    writer.bytes(tensor.name);
    writer.numbers(tensor.sizes);
    writer.number(static_cast<std::uint64_t>(tensor.type));
    writer.number(tensor.persistent ? 1 : 0);
    writer.number(tensor.section);
    writer.number(tensor.offset);
  }
  writer.number(object->nodes.size());
  for (const OpNode& node : object->nodes) {
    writer.bytes(node.guid);
    writer.numbers(node.inputs);
    writer.numbers(node.outputs);
    writer.bytes(node.params);
  }
  std::ofstream stream(file, std::ios::binary);
  stream << writer.text() << std::flush;
  return stream ? Result{kSuccess} : Result{kFail};
}

FACE_FUNCTION(synRecipeDeSerialize, Need::started, (Handle * recipe, const char* file), (recipe, file)) {
  FACE_REQUIRE(recipe != nullptr && file != nullptr, kInvalidArgument, "bad-argument",
               "the result or the name is null");
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  auto made = std::make_shared<SynapseRecipe>();
  try {
    Reader reader(text);
    made->workspace = reader.number();
    for (std::uint64_t left = reader.number(); left > 0; --left) {
      TensorFacts& tensor = made->tensors.emplace_back();
      tensor.name = reader.bytes();
      tensor.sizes = reader.numbers<std::vector<std::uint64_t>>();
      tensor.type = static_cast<int>(reader.number());
      tensor.persistent = reader.number() != 0;
      tensor.section = reader.number();
      tensor.offset = reader.number();
    }
    for (std::uint64_t left = reader.number(); left > 0; --left) {
      OpNode& node = made->nodes.emplace_back();
      node.guid = reader.bytes();
      node.inputs = reader.numbers<std::vector<std::size_t>>();
      node.outputs = reader.numbers<std::vector<std::size_t>>();
      const std::string params = reader.bytes();
      node.params.assign(params.begin(), params.end());
    }
  } catch (const CutShort&) {
    return kFail;
  }
  *recipe = handle_of(made, true);
  return kSuccess;
}

}  // namespace sim::habana
