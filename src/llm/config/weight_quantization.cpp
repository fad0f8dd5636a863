// Reads quantization_config. docs/model_files.md lists the methods and fields.
#include "llm/config/weight_quantization.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/text/text.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {
namespace {

using Kind = WeightQuantization::Kind;
using FieldNames = std::span<const std::string_view>;

bool is_empty(const JsonRef& value) {
  return value.is_null() || ((value.is_object() || value.is_array()) && value.size() == 0) ||
         (value.is_bool() && !value.boolean());
}

// Fails for a field that is in neither list, because it may change the weights. Fields that begin with "use_" choose
// kernels.
void check_fields(const JsonRef& object, FieldNames read, FieldNames ignored) {
  for (size_t i = 0; i < object.size(); ++i) {
    const std::string& key = object.key(i);
    const bool known = std::ranges::count(read, key) + std::ranges::count(ignored, key) > 0 || key.starts_with("use_");
    if (known || is_empty(object.member(i))) continue;
    object.member(i).error("this field of quantized weights is not known, and may change what they are");
  }
}

// Fails unless the field is missing, null, false or empty.
void refuse_field(const JsonRef& object, std::string_view key, std::string_view why) {
  const auto value = object.find(key);
  if (value && !is_empty(*value)) value->error(why);
}

std::string text_of(const JsonRef& object, std::string_view key, const std::string& fallback) {
  const auto value = object.find(key);
  return value ? value->string() : fallback;
}

// Returns the size of a group; -1 and null mean a whole row, for which 0 is returned.
int64_t read_group(const JsonRef& object) {
  const int64_t group = read_whole(object, "group_size", -1, max_size, -1);
  if (group == 0) object.at("group_size").fail("-1 (a whole row) or a positive number");
  return std::max<int64_t>(group, 0);
}

void read_bits(const JsonRef& object, std::string_view key, std::initializer_list<int> known, WeightQuantization& out) {
  const JsonRef value = object.at(key);
  out.bits = static_cast<int>(value.integer(1, 64));
  if (std::ranges::count(known, out.bits) > 0) return;
  std::string names;
  for (const int bits : known) names += (names.empty() ? "" : ", ") + std::to_string(bits);
  value.fail((known.size() > 1 ? "one of " : "") + names);
}

// How the quantizer worked and which kernels run. transformers 5 writes the fields of GPTQ for AWQ too.
constexpr std::string_view of_quantizer[] = {
    "damp_percent", "static_groups", "true_sequential", "act_group_aware", "meta", "model_name_or_path", "quantizer",
    "backend", "model_file_base_name", "dataset", "tokenizer", "batch_size", "block_name_to_quantize", "exllama_config",
    "cache_block_outputs", "max_input_length", "module_name_preceding_first_block", "model_seqlen", "pad_token_id",
    "disable_exllama", "modules_in_block_to_quantize", "damp_auto_increment", "mse", "uri", "do_fuse",
    "fuse_max_seq_len", "modules_to_fuse",
    // AutoRound's. Its act_bits, static_kv_dtype and rotation_configs are not here, because they change what is computed.
    "autoround_version", "provider", "amp", "enable_minmax_tuning", "enable_norm_bias_tuning", "enable_quanted_input",
    "gradient_accumulate_steps", "iters", "low_gpu_mem_usage", "lr", "minmax_lr", "nsamples", "quant_block_list",
    "scale_dtype", "seqlen", "supported_types", "to_quant_block_names"};

// Fails if the field is there and is another text.
void expect_text(const JsonRef& object, std::string_view key, std::string_view expected) {
  if (text_of(object, key, std::string(expected)) != expected) object.at(key).fail(quote_text(expected));
}

// Patterns that begin with "-" leave modules as they are, which their tensors show; others change settings.
void refuse_settings_of_modules(const JsonRef& object) {
  const auto dynamic = object.find("dynamic");
  if (!dynamic || is_empty(*dynamic)) return;
  if (!dynamic->is_object()) dynamic->fail("an object");
  for (size_t i = 0; i < dynamic->size(); ++i) {
    if (dynamic->key(i).starts_with('-')) continue;
    dynamic->member(i).error("modules with settings of their own are not supported");
  }
}

void read_gptq(const JsonRef& object, WeightQuantization& out) {
  constexpr std::string_view read[] = {"quant_method", "method",     "bits",     "group_size",        "desc_act",
                                       "sym",          "pack_dtype", "lm_head",  "checkpoint_format", "format",
                                       "version",      "dynamic",    "data_type"};
  refuse_settings_of_modules(object);
  refuse_field(object, "is_marlin_format", "the layout of Marlin is not supported; expected false");
  check_fields(object, read, of_quantizer);
  expect_text(object, "method", "gptq");
  expect_text(object, "data_type", "int");
  out.kind = Kind::Gptq;
  read_bits(object, "bits", {2, 4, 8}, out);
  out.group = read_group(object);
  out.symmetric = read_flag(object, "sym", true);
  out.has_order = read_flag(object, "desc_act", false);
  // Two names of the same field; newer programs write both.
  const std::string_view key = object.find("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string format = text_of(object, key, "gptq");
  if (format != "gptq" && format != "gptq_v2") object.at(key).fail("\"gptq\" or \"gptq_v2\"");
  expect_text(object, "format", format);
  out.zeros_less_one = format == "gptq";
  expect_text(object, "pack_dtype", "int32");
}

void read_awq(const JsonRef& object, WeightQuantization& out) {
  constexpr std::string_view read[] = {
      "quant_method", "method",     "bits",    "group_size",        "zero_point",
      "version",      "format",     "backend", "checkpoint_format", "desc_act",
      "lm_head",      "pack_dtype", "sym",     "data_type",         "modules_to_not_convert"};
  check_fields(object, read, of_quantizer);
  expect_text(object, "method", "awq");
  expect_text(object, "data_type", "int");
  out.kind = Kind::Awq;
  read_bits(object, "bits", {4}, out);
  out.group = read_group(object);
  // Whatever "sym" and "zero_point" say: this layout stores the zero points in any case.
  out.symmetric = false;
  read_flag(object, "zero_point", true);
  if (read_flag(object, "desc_act", false)) object.at("desc_act").fail("false");
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    std::string format = text_of(object, key, "gemm");
    std::ranges::transform(format, format.begin(), ascii_lower);
    if (format != "gemm") object.at(key).fail("\"gemm\"");
  }
  expect_text(object, "pack_dtype", "int32");
  const std::string backend = text_of(object, "backend", "autoawq");
  if (backend != "autoawq" && backend != "auto") object.at("backend").fail("\"autoawq\"");
}

// Reads the "weights" of one group.
void read_compressed_weights(const JsonRef& weights, const std::string& format, WeightQuantization& out) {
  constexpr std::string_view read[] = {"num_bits",   "type",     "symmetric",       "strategy",
                                       "group_size", "actorder", "block_structure", "dynamic"};
  constexpr std::string_view ignored[] = {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"};
  check_fields(weights, read, ignored);
  refuse_field(weights, "dynamic", "weights whose scales are found at run time are not supported");
  const std::string type = text_of(weights, "type", "int");
  const std::string strategy = text_of(weights, "strategy", "tensor");
  out.symmetric = read_flag(weights, "symmetric", true);
  out.group = 0;
  if (format == "pack-quantized") {
    out.kind = Kind::Packed;
    read_bits(weights, "num_bits", {2, 3, 4, 5, 6, 7, 8}, out);
  } else if (format == "int-quantized" || (format == "naive-quantized" && type == "int")) {
    out.kind = Kind::Int8;
    read_bits(weights, "num_bits", {2, 3, 4, 5, 6, 7, 8}, out);
  } else if (format == "float-quantized" || (format == "naive-quantized" && type == "float")) {
    out.kind = Kind::Float8;
    read_bits(weights, "num_bits", {8}, out);
  } else {
    out.kind = Kind::MxFloat4;
    read_bits(weights, "num_bits", {4}, out);
  }
  const bool is_float = out.kind == Kind::Float8 || out.kind == Kind::MxFloat4;
  if (type != (is_float ? "float" : "int")) weights.at("type").fail(is_float ? "\"float\"" : "\"int\"");
  if (is_float && !out.symmetric) weights.at("symmetric").fail("true");
  if (strategy == "group" && !is_float) {
    out.group = weights.at("group_size").integer(1, max_size);
  } else if (out.kind == Kind::MxFloat4 && strategy == "group") {
    out.group = weights.at("group_size").integer(32, 32);
  } else if (strategy == "block" && out.kind == Kind::Float8) {
    const JsonRef block = weights.at("block_structure");
    if (!block.is_array() || block.size() != 2) block.fail("two sizes");
    out.block_rows = block[0].integer(1, max_size);
    out.block_columns = block[1].integer(1, max_size);
  } else if (out.kind == Kind::MxFloat4 || (strategy != "channel" && strategy != "tensor")) {
    weights.at("strategy").fail("\"tensor\", \"channel\", \"group\" or, for float8, \"block\"");
  }
  const std::string order = text_of(weights, "actorder", "static");
  if (order != "group" && order != "weight" && order != "static" && order != "dynamic") {
    weights.at("actorder").fail("\"group\", \"weight\", \"static\", \"dynamic\" or null");
  }
  out.has_order = order == "group" || order == "dynamic";  // the others leave the inputs in their groups
}

bool same(const WeightQuantization& a, const WeightQuantization& b) {
  return a.kind == b.kind && a.bits == b.bits && a.group == b.group && a.symmetric == b.symmetric &&
         a.has_order == b.has_order && a.block_rows == b.block_rows && a.block_columns == b.block_columns;
}

// Rotations (SpinQuant, QuaRot) of weights alone are part of the weights in the files. Others are products that the model
// would have to compute in each step.
void refuse_online_transforms(const JsonRef& object) {
  const auto config = object.find("transform_config");
  if (!config || is_empty(*config)) return;
  const auto schemes = config->find("config_groups");
  if (!schemes || is_empty(*schemes)) return;
  if (!schemes->is_object()) schemes->fail("an object with rotations by name");
  for (size_t i = 0; i < schemes->size(); ++i) {
    const JsonRef uses = schemes->member(i).at("apply");
    for (size_t use = 0; use < uses.size(); ++use) {
      const JsonRef location = uses[use].at("location");
      if (location.string() == "weight_input" || location.string() == "weight_output") continue;
      location.error(
          "the rotation " + quote_text(schemes->key(i)) + " is applied to " + quote_text(location.string()) +
          " while the model runs, which is not supported; expected rotations that are merged into the weights "
          "(\"weight_input\", \"weight_output\"), as R1 and R2 of SpinQuant and QuaRot");
    }
  }
}

// Returns whether the weights are quantized: llm-compressor writes the object for merged rotations alone, too.
bool read_compressed(const JsonRef& object, WeightQuantization& out, std::vector<std::string>& notes) {
  constexpr std::string_view read[] = {"quant_method", "format", "config_groups", "quantization_status"};
  constexpr std::string_view ignored[] = {"ignore", "global_compression_ratio", "version", "sparsity_config",
                                          "transform_config"};
  constexpr std::string_view of_group[] = {"targets", "weights", "input_activations", "format"};
  refuse_field(object, "kv_cache_scheme", "a quantized cache of keys and values is not supported");
  refuse_online_transforms(object);
  const auto sparsity = object.find("sparsity_config");
  if (sparsity && !is_empty(*sparsity) && text_of(*sparsity, "format", "dense") != "dense") {
    sparsity->error("sparse weights are not supported");
  }
  check_fields(object, read, ignored);
  const std::string status = text_of(object, "quantization_status", "compressed");
  if (status != "compressed" && status != "frozen") object.at("quantization_status").fail("\"compressed\"");
  if (object.find("transform_config") && !object.find("config_groups") && !object.find("format")) return false;
  const JsonRef groups = object.at("config_groups");
  if (!groups.is_object() || groups.size() == 0) groups.fail("an object with a group of modules");
  bool rounds = false;
  for (size_t i = 0; i < groups.size(); ++i) {
    const JsonRef group = groups.member(i);
    check_fields(group, of_group, {});
    const std::string format = text_of(group, "format", text_of(object, "format", ""));
    constexpr std::string_view formats[] = {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                            "mxfp4-pack-quantized"};
    if (std::ranges::count(formats, format) == 0) {
      object.error("the format of compressed-tensors is " + quote_text(format) +
                   ", which is not supported; supported are pack-quantized, int-quantized, float-quantized, "
                   "naive-quantized and mxfp4-pack-quantized");
    }
    WeightQuantization one = out;
    read_compressed_weights(group.at("weights"), format, one);
    if (i > 0 && !same(one, out))
      group.error("groups of modules that are quantized in different ways are not supported");
    out = one;
    rounds |= group.find("input_activations").has_value();
  }
  if (rounds) {
    notes.push_back(
        "config.json says that the inputs of products are rounded (input_activations of quantization_config); here "
        "they "
        "are not, so that results are a little more precise");
  }
  return true;
}

void read_fp8(const JsonRef& object, WeightQuantization& out, std::vector<std::string>& notes) {
  constexpr std::string_view read[] = {"quant_method", "activation_scheme", "fmt", "weight_block_size", "scale_fmt"};
  constexpr std::string_view ignored[] = {"modules_to_not_convert", "ignored_layers", "dequantize"};
  check_fields(object, read, ignored);
  out.kind = Kind::Float8;
  out.bits = 8;
  if (text_of(object, "fmt", "e4m3") != "e4m3") object.at("fmt").fail("\"e4m3\"");
  if (const auto block = object.find("weight_block_size")) {
    if (!block->is_array() || block->size() != 2) block->fail("two sizes");
    out.block_rows = (*block)[0].integer(1, max_size);
    out.block_columns = (*block)[1].integer(1, max_size);
  }
  notes.push_back(
      "config.json says that the inputs of products are rounded to float8 (activation_scheme of quantization_config); "
      "here "
      "they are not, so that results are a little more precise");
}

void read_mxfp4(const JsonRef& object, WeightQuantization& out) {
  constexpr std::string_view read[] = {"quant_method"};
  constexpr std::string_view ignored[] = {"modules_to_not_convert", "dequantize"};
  check_fields(object, read, ignored);
  out.kind = Kind::MxFloat4;
  out.group = 32;
}

}  // namespace

std::shared_ptr<const WeightQuantization> read_quantization(const JsonRef& config, std::vector<std::string>& notes) {
  if (!config.is_object()) config.fail("an object or null");
  auto out = std::make_shared<WeightQuantization>();
  const auto method = config.find("quant_method");
  if (!method) config.error("has no quant_method; expected gptq, awq, compressed-tensors, fp8 or mxfp4");
  out->method = method->string();
  if (out->method == "gptq") {
    read_gptq(config, *out);
  } else if (out->method == "awq") {
    read_awq(config, *out);
  } else if (out->method == "compressed-tensors") {
    if (!read_compressed(config, *out, notes)) return nullptr;
  } else if (out->method == "fp8") {
    read_fp8(config, *out, notes);
  } else if (out->method == "mxfp4") {
    read_mxfp4(config, *out);
  } else {
    config.error("quantized weights (quant_method " + quote_text(out->method) +
                 ") are not supported; supported are gptq, awq, compressed-tensors, fp8 and mxfp4, and checkpoints in "
                 "float32, bfloat16 or float16");
  }
  return out;
}

}  // namespace anyaccel::llm
