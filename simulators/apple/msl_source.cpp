// Implements the reading of kernels: their attributes, address spaces and structs. See the specification of the Metal Shading
// Language, "Address Spaces" and "Function Arguments and Variables", for what an argument may be.
#include "simulators/apple/msl_source.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "simulators/libraries/source_text.h"

namespace sim::apple {
namespace {

using sim_library::is_word;
using sim_library::Token;
using Words = std::vector<std::string>;

struct Layout {
  std::size_t size = 0, alignment = 1;
  std::vector<MslField> fields;
};

const std::set<std::string>& qualifiers() {
  static const std::set<std::string> all = {"const",    "volatile", "restrict", "__restrict",  "__restrict__",
                                            "device",   "constant", "thread",   "threadgroup", "struct",
                                            "typename", "static",   "metal",    "coherent"};
  return all;
}

class Reader {
 public:
  explicit Reader(const std::vector<Token>& tokens) : tokens_(tokens) {
    for (const auto& [name, size] : {std::pair<const char*, std::size_t>{"char", 1},
                                     {"uchar", 1},
                                     {"bool", 1},
                                     {"int8_t", 1},
                                     {"uint8_t", 1},
                                     {"short", 2},
                                     {"ushort", 2},
                                     {"half", 2},
                                     {"bfloat", 2},
                                     {"int16_t", 2},
                                     {"uint16_t", 2},
                                     {"int", 4},
                                     {"uint", 4},
                                     {"float", 4},
                                     {"int32_t", 4},
                                     {"uint32_t", 4},
                                     {"unsigned", 4},
                                     {"long", 8},
                                     {"ulong", 8},
                                     {"int64_t", 8},
                                     {"uint64_t", 8},
                                     {"size_t", 8},
                                     {"ptrdiff_t", 8},
                                     {"uintptr_t", 8}}) {
      layouts_[name] = {size, size, {}};
    }
  }

  std::vector<MslKernel> read() {
    std::vector<MslKernel> kernels;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string& text = tokens_[i].text;
      if (text == "typedef" || text == "struct" || text == "using") read_type(i);
      if (text != "kernel") continue;
      // kernel void f, [[max_total_threads_per_threadgroup(n)]] kernel void f, [[kernel]] void f
      std::size_t first = i;
      if (i > 1 && (at(i - 1) == "[" || at(i - 1) == ",")) {
        while (first > 0 && !(at(first) == "[" && at(first - 1) == "[")) --first;
        first = first == 0 ? i : first - 1;
      } else if (i > 1 && at(i - 1) == "]" && at(i - 2) == "]") {
        first = i - 1;
        for (int depth = 0; first > 0; --first) {
          depth += at(first) == "]" ? 1 : at(first) == "[" ? -1 : 0;
          if (depth == 0) break;
        }
      }
      MslKernel kernel;
      if (read_kernel(first, &kernel)) kernels.push_back(std::move(kernel));
    }
    return kernels;
  }

 private:
  const std::string& at(std::size_t i) const {
    static const std::string none;
    return i < tokens_.size() ? tokens_[i].text : none;
  }
  // Behind the bracket that closes the one at `i`.
  std::size_t skip(std::size_t i) const {
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      const std::string& text = tokens_[i].text;
      if (text == "(" || text == "[" || text == "{") ++depth;
      if (text == ")" || text == "]" || text == "}") {
        if (--depth == 0) return i + 1;
      }
    }
    return i;
  }

  const Layout* layout(const Words& type) const {
    Words left;
    for (const std::string& word : type) {
      if (qualifiers().count(word) == 0 && is_word(word[0])) left.push_back(word);
    }
    if (left.empty()) return nullptr;
    // unsigned char, long long
    std::string name = left.back();
    if (left.size() > 1 && left.front() == "unsigned" && name == "long") name = "ulong";
    const auto found = layouts_.find(name);
    return found == layouts_.end() ? nullptr : &found->second;
  }

  static std::size_t count_of(const Words& expression) {
    std::size_t product = 1;  // a number, or a product of such
    for (const std::string& word : expression) {
      if (word != "*" && word != "(" && word != ")") product *= std::strtoull(word.c_str(), nullptr, 0);
    }
    return product;
  }

  // The members between `i`, behind the brace, and the brace that closes.
  Layout read_members(std::size_t i, std::size_t end) const {
    Layout result;
    while (i < end) {
      Words type;
      std::size_t k = i;
      bool function = false;
      for (; k < end && at(k) != ";"; ++k) {
        if (at(k) == "(") function = true;
        if (at(k) == "{") {
          k = skip(k) - 1;
          function = true;
          if (at(k + 1) != ";") break;
        }
      }
      if (function) {
        i = k + 1;
        continue;
      }
      // Type, then names with stars and brackets between commas.
      std::size_t first = i;
      while (first < k && (is_word(at(first)[0]) || at(first) == ":" || at(first) == "*" || at(first) == "&")) ++first;
      std::size_t name_at = first;  // behind the first name
      while (name_at > i && !is_word(at(name_at - 1)[0])) --name_at;
      std::size_t type_end = name_at == i ? i : name_at - 1;
      for (std::size_t t = i; t < type_end; ++t) type.push_back(at(t));
      const bool first_pointer = std::find(type.begin(), type.end(), "*") != type.end();
      const bool constant = std::find(type.begin(), type.end(), "const") != type.end() ||
                            std::find(type.begin(), type.end(), "constant") != type.end();
      const Layout* base = layout(type);
      bool pointer = first_pointer;
      for (std::size_t t = type_end; t < k;) {
        if (at(t) == ",") {
          ++t;
          continue;
        }
        if (at(t) == "*") {
          pointer = true;
          ++t;
          continue;
        }
        if (at(t) == "[" && at(t + 1) == "[") {  // an attribute
          t = skip(t);
          continue;
        }
        MslField field;
        field.name = at(t++);
        std::size_t count = 1;
        while (t < k && at(t) == "[" && at(t + 1) != "[") {
          Words expression;
          const std::size_t after = skip(t);
          for (std::size_t e = t + 1; e + 1 < after; ++e) expression.push_back(at(e));
          count *= count_of(expression);
          t = after;
        }
        field.pointer = pointer;
        field.writes = pointer && !constant;
        const std::size_t size = pointer ? 8 : base == nullptr ? 0 : base->size;
        const std::size_t alignment = pointer ? 8 : base == nullptr ? 1 : base->alignment;
        field.size = size * count;
        result.size = (result.size + alignment - 1) / alignment * alignment;
        field.offset = result.size;
        result.size += field.size;
        result.alignment = std::max(result.alignment, alignment);
        result.fields.push_back(std::move(field));
        pointer = false;
      }
      i = k + 1;
    }
    result.size = (result.size + result.alignment - 1) / result.alignment * result.alignment;
    return result;
  }

  void read_type(std::size_t i) {
    const bool alias = at(i) == "typedef";
    if (at(i) == "using") {
      if (at(i + 2) != "=") return;
      Words type;
      std::size_t k = i + 3;
      for (; k < tokens_.size() && at(k) != ";"; ++k) type.push_back(at(k));
      if (const Layout* known = layout(type)) layouts_[at(i + 1)] = *known;
      return;
    }
    std::size_t k = alias ? i + 1 : i;
    if (at(k) == "struct") {
      std::string name;
      if (is_word(at(k + 1)[0])) name = at(++k);
      ++k;
      if (at(k) == "{") {
        const std::size_t end = skip(k);
        const Layout made = read_members(k + 1, end - 1);
        if (!name.empty()) layouts_[name] = made;
        if (alias && is_word(at(end)[0])) layouts_[at(end)] = made;
        return;
      }
      if (!alias) return;
      k = i + 1;
    }
    Words words;
    for (; k < tokens_.size() && at(k) != ";"; ++k) words.push_back(at(k));
    if (words.size() < 2) return;
    const std::string name = words.back();
    words.pop_back();
    if (const Layout* known = layout(words)) layouts_[name] = *known;
  }

  bool read_kernel(std::size_t i, MslKernel* kernel) {
    // Attributes, the result, the name.
    for (; i < tokens_.size() && at(i) != "("; ++i) {
      if (at(i) == "[" && at(i + 1) == "[") {
        const std::size_t end = skip(i);
        for (std::size_t k = i; k < end; ++k) {
          if (at(k) == "max_total_threads_per_threadgroup") kernel->most_threads = std::atoi(at(k + 2).c_str());
        }
        i = end - 1;
        continue;
      }
      if (at(i) == ";" || at(i) == "{") return false;
      kernel->name = at(i);
    }
    const std::size_t end = skip(i);
    if (at(end) == ";") return false;  // only declared
    int next_index = 0;
    for (std::size_t k = i + 1; k + 1 < end;) {
      Words words;
      std::map<std::string, std::string> attributes;
      int angle = 0;
      for (; k + 1 < end && (at(k) != "," || angle > 0); ++k) {
        if (at(k) == "[" && at(k + 1) == "[") {
          const std::size_t after = skip(k);
          for (std::size_t a = k + 2; a + 2 < after; ++a) {
            if (is_word(at(a)[0]) && at(a - 1) != "(") attributes[at(a)] = at(a + 1) == "(" ? at(a + 2) : "";
          }
          k = after - 1;
          continue;
        }
        if (at(k) == "<") ++angle;
        if (at(k) == ">") --angle;
        words.push_back(at(k));
      }
      ++k;
      add_argument(words, attributes, &next_index, kernel);
    }
    return true;
  }

  void add_argument(const Words& words, const std::map<std::string, std::string>& attributes, int* next_index,
                    MslKernel* kernel) const {
    const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
    if (words.empty() || (words.size() == 1 && words[0] == "void")) return;
    if (attributes.count("function_constant") != 0) kernel->problem = "function constants are not simulated";
    if (has("threadgroup") && (has("*") || has("&"))) {
      const auto given = attributes.find("threadgroup");
      kernel->threadgroup_indices.push_back(given != attributes.end()
                                                ? std::atoi(given->second.c_str())
                                                : static_cast<int>(kernel->threadgroup_indices.size()));
      return;
    }
    if (!has("device") && !has("constant")) {
      // Positions and sizes of the grid have an attribute; anything else is no argument that Metal takes.
      if (attributes.empty() || attributes.count("buffer") != 0) {
        kernel->problem = "argument '" + words.back() + "' has neither an address space nor an attribute";
      }
      if (attributes.count("texture") != 0 || attributes.count("sampler") != 0) {
        kernel->problem = "textures and samplers are not simulated";
      }
      return;
    }
    MslArgument argument;
    argument.name = words.back();
    const auto given = attributes.find("buffer");
    argument.index = given != attributes.end() ? std::atoi(given->second.c_str()) : *next_index;
    *next_index = std::max(*next_index, argument.index + 1);
    argument.reference = has("&") || has("constant");
    argument.writes = has("device") && !has("const");
    const Words type(words.begin(), words.end() - 1);
    if (const Layout* known = layout(type)) {
      argument.size = known->size;
      argument.fields = known->fields;
    }
    kernel->arguments.push_back(std::move(argument));
  }

  const std::vector<Token>& tokens_;
  std::map<std::string, Layout> layouts_;
};

// The settings for which the simulators' kernels were compiled (simulators/kernels/host_kernels.cmake): a source of
// portable kernels with other settings would count its groups otherwise.
constexpr const char* kSettings = R"(
#if defined(AA_GROUP_SIZE) && defined(AA_LANES) && defined(AA_SUBGROUP) && defined(AA_ITEMS)
#if AA_GROUP_SIZE != 32 || AA_LANES != 8 || AA_SUBGROUP != 8 || AA_ITEMS != 32
#error "the simulator's kernels are for group_size=32,lanes=8,subgroup_size=8,items=32; see ANYACCEL_KERNEL_TUNING"
#endif
#endif
)";

}  // namespace

MslResult read_msl(const std::string& source, const std::vector<std::string>& options) {
  MslResult result;
  sim_library::PreprocessRequest request;
  request.name = "program_source";  // as Metal calls it
  request.source = source + kSettings;
  // The headers of the language, which have nothing that matters here.
  for (const char* name :
       {"metal_stdlib", "metal_math", "metal_common", "metal_compute", "metal_integer", "metal_relational",
        "metal_atomic", "metal_simdgroup", "metal_simdgroup_matrix", "metal_pack", "metal_numeric"}) {
    request.headers[name] = "";
  }
  request.options = {"-D__METAL__=1", "-D__METAL_VERSION__=320", "-D__METAL_MACOS__=1", "-D__HAVE_BFLOAT__=1"};
  request.options.insert(request.options.end(), options.begin(), options.end());
  const sim_library::Preprocessed read = sim_library::preprocess(request);
  if (!read.started || !read.succeeded) {
    result.log = (read.started ? "" : "simulated Metal: ") + read.text;
    return result;
  }
  const std::vector<Token> tokens = sim_library::tokens_of(read.text);
  int line = 0;
  if (const std::string problem = sim_library::syntax_error(tokens, &line); !problem.empty()) {
    result.log = "program_source:" + std::to_string(line) + ":1: error: " + problem + "\n";
    return result;
  }
  result.kernels = Reader(tokens).read();
  result.succeeded = true;
  return result;
}

std::string match_arguments(const MslKernel& kernel, const KernelInfo& info, std::vector<ArgumentSource>* sources) {
  // One leaf for each thing that a parameter can be: an argument, or the members of a struct that is no parameter itself.
  const auto leaves = [&](bool open) {
    std::vector<ArgumentSource> all;
    for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
      const MslArgument& argument = kernel.arguments[i];
      const bool has_pointer = std::any_of(argument.fields.begin(), argument.fields.end(),
                                           [](const MslField& field) { return field.pointer; });
      if (has_pointer || (open && !argument.fields.empty())) {
        for (const MslField& field : argument.fields) {
          all.push_back({i, true, field.pointer, field.writes, field.offset, field.size});
        }
      } else if (argument.reference) {
        all.push_back({i, true, false, false, 0, argument.size});
      } else {
        all.push_back({i, false, true, argument.writes, 0, sizeof(void*)});
      }
    }
    return all;
  };
  for (const bool open : {false, true}) {
    std::vector<ArgumentSource> all = leaves(open);
    // Pointers and values each in the order of the parameters, wherever they stand.
    std::vector<ArgumentSource> matched(info.parameters.size());
    std::vector<bool> taken(all.size());
    bool fits = all.size() == info.parameters.size();
    for (std::size_t p = 0; fits && p < info.parameters.size(); ++p) {
      const ParameterInfo& parameter = info.parameters[p];
      const auto suits = [&](const ArgumentSource& leaf) {
        return leaf.pointer == parameter.pointer && (leaf.pointer || leaf.size == 0 || leaf.size == parameter.size);
      };
      std::size_t found = all.size();
      for (std::size_t k = 0; k < all.size() && found == all.size(); ++k) {
        if (!taken[k] && all[k].pointer == parameter.pointer) found = k;
      }
      fits = found < all.size() && suits(all[found]);
      if (!fits) break;
      taken[found] = true;
      matched[p] = all[found];
      matched[p].size = parameter.size;
    }
    if (!fits) continue;
    *sources = std::move(matched);
    return {};
  }
  return "the arguments of kernel " + kernel.name +
         " are not those of the kernel compiled into the simulator, which has " +
         std::to_string(info.parameters.size());
}

}  // namespace sim::apple
