// Implements `anyaccel generate`: loads a Hugging Face directory and streams the text that follows the prompts. In a
// job of several ranks the model is sharded over them; rank 0 reads the prompts and prints.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/dtype.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/llm/check_tensors.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/text_generation.h"
#include "cli/commands/beam_options.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/commands/model_options.h"
#include "cli/commands/ranked_command.h"
#include "cli/commands/sampling_options.h"
#include "cli/json_output.h"
#include "cli/prompt_file.h"

namespace anyaccel::cli {

namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_files;
  std::vector<std::string> stop;
  std::string dtype = "auto";
  SamplingOptions sampling;
  BeamOptions beams;
  // Numbers are texts until check_numbers() has parsed them. If empty, the value comes from generation_config.json.
  std::optional<std::string> max_new_tokens;
  std::string context = "0";
  std::optional<std::string> min_new_tokens;
  std::optional<std::string> top_logprobs;
  std::string activations = "auto";
  std::string quantize;
  std::string cache = "auto";
  std::vector<std::string> adapters;
  std::vector<std::string> used_adapters;
  std::string draft;
  std::optional<std::string> draft_ngrams;
  std::optional<std::string> draft_tokens;
  std::string prompt_cache;
  bool deterministic = false;
  bool ignore_eos = false;
  bool no_bos = false;
  bool no_stream = false;
  bool no_mmap = false;
  bool check_tensors = false;
  bool json = false;
  bool quiet = false;
};

struct Numbers {
  llm::CacheType cache = llm::CacheType::Model;
  std::optional<int64_t> max_new_tokens;
  int64_t context = 0;
  std::optional<int64_t> min_new_tokens;
  std::optional<int32_t> top_logprobs;
  std::optional<llm::Speculation> speculation;  // without its model
};

void add_options(CommandLine& line, Arguments& arguments) {
  line.add_option("--model", arguments.model,
                  "Directory with config.json, *.safetensors and a tokenizer (docs/tokenizers.md), or a .gguf file")
      .required()
      .not_empty();
  // One value for each --prompt, so that a prompt may begin with a dash.
  line.add_option("--prompt", arguments.prompts, "Text to go on from; give it again for more prompts").one_each();
  line.add_option("--prompt-file", arguments.prompt_files, "A file that holds one prompt; - reads standard input")
      .one_each()
      .not_empty();
  line.add_option("--max-new-tokens", arguments.max_new_tokens,
                  "Most tokens to generate for each prompt; default: the limit in generation_config.json, else 256")
      .type("N");
  line.add_option("--min-new-tokens", arguments.min_new_tokens, "No end-of-text token before so many tokens").type("N");
  arguments.sampling.add(line);
  arguments.beams.add(line);
  line.add_option("--stop", arguments.stop, "End before this text; may be given several times").one_each();
  line.add_option("--dtype", arguments.dtype, "auto (as in the file where supported), fp32, bf16 or fp16")
      .show_default();
  line.add_option("--activations", arguments.activations,
                  "What goes into the products of a bf16 model: bf16, as PyTorch does, fp32, or auto (bf16 where the "
                  "accelerator multiplies that faster)")
      .show_default();
  line.add_option("--quantize", arguments.quantize,
                  "Quantize the matrices while they load: " + llm::load_types() + "; see docs/quantization.md")
      .type("TYPE")
      .not_empty();
  line.add_option(
          "--kv-cache", arguments.cache,
          "Elements of the cache of keys and values: auto (those of the model), int8 or fp8, half the memory of 16 "
          "bits; see docs/quantization.md")
      .show_default();
  add_adapter_options(line, arguments.adapters, arguments.used_adapters,
                      "Answer with the adapter of this name; several are one for each prompt");
  line.add_option("--draft", arguments.draft,
                  "Directory of a small model with the same tokens, which proposes tokens: the same text, faster; see "
                  "docs/generation.md")
      .type("DIR")
      .not_empty();
  line.add_option("--draft-ngrams", arguments.draft_ngrams,
                  "The same without a model: what followed the newest N tokens where they occurred before")
      .type("N");
  line.add_option("--draft-tokens", arguments.draft_tokens, "Most tokens proposed in a step; else 4").type("N");
  line.add_option(
          "--prompt-cache", arguments.prompt_cache,
          "Keep the keys and values of the prompt in this file, and take those that it has; see docs/generation.md")
      .type("FILE")
      .not_empty();
  line.add_flag("--deterministic", arguments.deterministic,
                "A prompt's text does not depend on the other prompts; slower, see docs/architecture.md");
  line.add_option("--context", arguments.context,
                  "Most tokens of prompt and answer together; 0 is as many as needed, at most the model's own limit")
      .type("N")
      .show_default();
  line.add_flag("--no-bos", arguments.no_bos,
                "Add no tokens around the prompt (a beginning-of-text token, mostly): it has them already");
  line.add_flag("--ignore-eos", arguments.ignore_eos, "Go on past end-of-text tokens");
  line.add_flag("--check-tensors", arguments.check_tensors,
                "First read all weights and name those that are damaged, or too large for --dtype; needs no prompt");
  line.add_flag("--no-mmap", arguments.no_mmap,
                "Read the weights into memory, so that their files may change while text is generated");
  line.add_flag("--no-stream", arguments.no_stream, "Print the text when it is complete");
  line.add_option("--top-logprobs", arguments.top_logprobs,
                  "With --json: log-probabilities of each token and of the N most likely ones in its place")
      .type("N");
  line.add_json_flag(arguments.json, "Print one JSON object with texts, token ids and timings, or with the error");
  line.add_quiet_flag("--quiet", arguments.quiet,
                      "Only the generated text: no prompt before it, nothing but errors on standard error");
}

Numbers check_numbers(const Arguments& arguments) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  Numbers numbers;
  numbers.cache = wanted_cache(arguments.cache);
  check_type("--quantize", arguments.quantize, llm::load_types());
  const auto count = [&](const char* option, const std::optional<std::string>& text, int64_t low) {
    return text ? std::optional(parse_integer(option, *text, low, most)) : std::nullopt;
  };
  numbers.max_new_tokens = count("--max-new-tokens", arguments.max_new_tokens, 1);
  numbers.min_new_tokens = count("--min-new-tokens", arguments.min_new_tokens, 0);
  if (arguments.top_logprobs) {
    numbers.top_logprobs =
        static_cast<int32_t>(parse_integer("--top-logprobs", *arguments.top_logprobs, 0, llm::max_top_logprobs));
    if (!arguments.json) throw UsageError("--top-logprobs is part of the output of --json; give that too");
  }
  if (!arguments.draft.empty() || arguments.draft_ngrams) {
    numbers.speculation.emplace();
    if (!arguments.draft.empty() && arguments.draft_ngrams) {
      throw UsageError("--draft and --draft-ngrams both propose tokens; give one of them");
    }
    if (arguments.draft_ngrams) {
      numbers.speculation->ngrams =
          static_cast<int32_t>(parse_integer("--draft-ngrams", *arguments.draft_ngrams, 1, 64));
    }
  }
  if (arguments.draft_tokens) {
    if (!numbers.speculation)
      throw UsageError("--draft-tokens is about --draft DIR or --draft-ngrams N; give one of them");
    numbers.speculation->tokens =
        static_cast<int32_t>(parse_integer("--draft-tokens", *arguments.draft_tokens, 1, llm::max_draft_tokens));
  }
  if (!arguments.prompt_cache.empty()) {
    if (numbers.speculation) {
      throw UsageError("--prompt-cache does not go with --draft or --draft-ngrams; leave one out");
    }
    if (arguments.prompts.size() + arguments.prompt_files.size() > 1) {
      throw UsageError("--prompt-cache is for one prompt; give one");
    }
  }
  numbers.context = parse_integer("--context", arguments.context, 0, most);
  arguments.sampling.check();
  arguments.beams.check(arguments.sampling);
  if (arguments.beams.asked() && (numbers.speculation || !arguments.prompt_cache.empty() || numbers.top_logprobs)) {
    throw UsageError(
        "--beams does not go with --draft, --draft-ngrams, --prompt-cache or --top-logprobs; leave one out");
  }
  for (const std::string& stop : arguments.stop) {
    if (stop.empty()) throw UsageError("--stop is empty; expected some text");
  }
  if (arguments.prompts.empty() && arguments.prompt_files.empty() && !arguments.check_tensors) {
    throw UsageError("no prompt; give one with --prompt TEXT or --prompt-file FILE");
  }
  return numbers;
}

std::vector<std::string> all_prompts(const Arguments& arguments) {
  std::vector<std::string> prompts = arguments.prompts;
  for (const std::string& file : arguments.prompt_files) {
    std::string text = read_text_file(file, "--prompt-file");
    if (!text.empty() && text.back() == '\n') text.pop_back();  // the newline that editors append
    prompts.push_back(std::move(text));
  }
  for (const std::string& prompt : arguments.prompts) check_prompt_text(prompt, "--prompt");
  return prompts;
}

llm::GenerateOptions generate_options(const Arguments& arguments, const Numbers& numbers,
                                      const llm::TextGenerator& generator) {
  llm::GenerateOptions options = generator.default_options();
  arguments.sampling.apply(options, *generator.tokenizer());
  arguments.beams.apply(options, generator.generation_config());
  if (numbers.max_new_tokens) {
    options.max_new_tokens = *numbers.max_new_tokens;
    options.max_length = 0;
  }
  if (numbers.min_new_tokens) options.rules.min_new_tokens = *numbers.min_new_tokens;
  options.top_logprobs = numbers.top_logprobs;
  options.context = numbers.context;
  options.stop.insert(options.stop.end(), arguments.stop.begin(), arguments.stop.end());
  options.ignore_eos = arguments.ignore_eos;
  options.add_special_tokens = !arguments.no_bos;
  options.deterministic = arguments.deterministic;
  options.cache = numbers.cache;
  options.speculation = numbers.speculation;
  options.adapters = arguments.used_adapters;
  options.prompt_cache = arguments.prompt_cache;
  return options;
}

llm::TextGenerator load(const Arguments& arguments, DType dtype, const RankedCommand& job) {
  llm::LoadOptions options;
  options.dtype = dtype;
  options.activations = wanted_activations(arguments.activations);
  options.group = job.group();
  options.map_files = !arguments.no_mmap;
  options.quantize = arguments.quantize;
  apply_adapters(arguments.adapters, arguments.used_adapters, options);
  const bool show_messages = !arguments.quiet && job.speaks();
  llm::TextGenerator generator = load_generator(arguments.model, options, show_messages);
  if (show_messages) {
    const std::string share = job.ranks() > 1 ? " on rank 0 of " + std::to_string(job.ranks()) : "";
    print_model_summary(arguments.model, share, generator);
  }
  return generator;
}

void print_texts(const llm::GenerateResult& result) {
  for (size_t i = 0; i < result.completions.size(); ++i) {
    if (result.completions.size() > 1) std::cout << (i > 0 ? "\n" : "") << "=== prompt " << i + 1 << " ===\n";
    std::cout << result.completions[i].text << '\n';
  }
}

// Returns a token's id, its spelling in the vocabulary and its log-probability.
JsonValue logprob_json(const llm::Tokenizer& tokenizer, int32_t id, float logprob) {
  return {{"id", id}, {"token", tokenizer.id_to_token(id).value_or("")}, {"logprob", logprob}};
}

JsonValue logprobs_json(const llm::Tokenizer& tokenizer, const llm::Completion& completion) {
  JsonValue tokens = JsonArray();
  for (size_t i = 0; i < completion.logprobs.size(); ++i) {
    JsonValue token = logprob_json(tokenizer, completion.token_ids[i], completion.logprobs[i].logprob);
    JsonValue& top = token["top"] = JsonArray();
    for (const auto& [id, logprob] : completion.logprobs[i].top) top.push_back(logprob_json(tokenizer, id, logprob));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

JsonValue beams_json(const llm::Completion& completion) {
  JsonValue beams = JsonArray();
  for (const llm::ScoredAnswer& answer : completion.beams) {
    beams.push_back({{"text", answer.text},
                     {"finish_reason", llm::finish_reason_name(answer.finish_reason)},
                     {"token_ids", answer.token_ids},
                     {"score", answer.score}});
  }
  return beams;
}

JsonValue result_json(const Arguments& arguments, const std::vector<std::string>& prompts,
                      const llm::TextGenerator& generator, const llm::GenerateResult& result) {
  JsonValue completions = JsonArray();
  for (size_t i = 0; i < result.completions.size(); ++i) {
    const llm::Completion& completion = result.completions[i];
    completions.push_back({{"prompt", prompts[i]},
                           {"text", completion.text},
                           {"finish_reason", llm::finish_reason_name(completion.finish_reason)},
                           {"prompt_ids", completion.prompt_ids},
                           {"token_ids", completion.token_ids}});
    if (arguments.top_logprobs) {
      std::get<JsonArray>(completions.data).back()["logprobs"] = logprobs_json(*generator.tokenizer(), completion);
    }
    if (!completion.beams.empty()) std::get<JsonArray>(completions.data).back()["beams"] = beams_json(completion);
  }
  const llm::GenerateTimings& timings = result.timings;
  return {{"model", arguments.model},
          {"accelerator", get_accelerator()->name()},
          {"ranks", generator.model().shard().ranks},
          {"dtype", dtype_name(generator.model().dtype())},
          {"seed", result.seed},
          {"warnings", generator.generation_config().warnings},
          {"completions", std::move(completions)},
          {"timings",
           {{"load_seconds", generator.load_seconds()},
            {"prefill_seconds", timings.prefill_seconds},
            {"prefill_tokens_per_second", timings.prefill_rate()},
            {"prompt_tokens", timings.prompt_tokens},
            {"decode_seconds", timings.decode_seconds},
            {"decode_tokens_per_second", timings.decode_rate()},
            {"decoded_tokens", timings.decoded_tokens},
            {"decode_steps", timings.decode_steps},
            {"replayed_steps", timings.replayed_steps},
            {"draft_tokens", timings.draft_tokens},
            {"accepted_tokens", timings.accepted_tokens},
            {"host_share", timings.host_share()}}}};
}

void print_timings(const llm::GenerateResult& result) {
  const llm::GenerateTimings& timings = result.timings;
  int64_t generated = 0;
  for (const llm::Completion& completion : result.completions) {
    generated += static_cast<int64_t>(completion.token_ids.size());
  }
  const std::string drafts = timings.draft_tokens == 0
                                 ? ""
                                 : "; drafts: " + std::to_string(timings.accepted_tokens) + " of " +
                                       std::to_string(timings.draft_tokens) + " tokens taken";
  std::fprintf(stderr,
               "prompt: %lld tokens, %.1f tokens/s; generated: %lld tokens, %.1f tokens/s, host %.1f%%; seed %llu%s\n",
               static_cast<long long>(timings.prompt_tokens), timings.prefill_rate(), static_cast<long long>(generated),
               timings.decode_rate(), 100.0 * timings.host_share(), static_cast<unsigned long long>(result.seed),
               drafts.c_str());
}

JsonValue check_json(const Arguments& arguments, const llm::TensorCheck& check) {
  JsonValue findings = JsonArray();
  for (const llm::TensorFinding& finding : check.findings) {
    findings.push_back({{"tensor", finding.tensor},
                        {"file", finding.file},
                        {"shape", finding.shape},
                        {"dtype", dtype_name(finding.dtype)},
                        {"used", finding.wanted != DType::None},
                        {"damaged", finding.damaged()},
                        {"nan", finding.nan_count},
                        {"infinite", finding.infinite_count},
                        {"overflow", finding.overflow_count},
                        {"all_zero", finding.all_zero},
                        {"largest", finding.largest},
                        {"first", finding.first}});
  }
  return {{"model", arguments.model}, {"tensors", check.tensors},   {"bytes", check.bytes},
          {"seconds", check.seconds}, {"damaged", check.damaged()}, {"findings", std::move(findings)}};
}

// The results go to standard output if nothing else was requested (`alone`), and to standard error if text is generated
// too. Throws CheckpointError if a tensor is damaged.
void check_weights(const Arguments& arguments, DType dtype, bool alone) {
  const llm::TensorCheck check = llm::check_tensors(arguments.model, dtype);
  const size_t damaged = check.damaged();
  const bool as_json = alone && arguments.json;
  if (!as_json) {
    std::ostream& out = alone ? std::cout : std::cerr;
    for (const llm::TensorFinding& finding : check.findings) {
      if (!finding.damaged() && arguments.quiet) continue;
      out << (finding.damaged() ? "damaged: " : "note: ") << finding.to_string() << '\n';
    }
    if (!arguments.quiet) {
      const double bytes = static_cast<double>(check.bytes);
      out << "checked " << check.tensors << " tensors, " << format_bytes(bytes) << ", at "
          << format_bytes(bytes / std::max(check.seconds, 1e-9)) << "/s: " << damaged << " damaged\n";
    }
    out << std::flush;
  } else if (damaged == 0) {
    print_json(check_json(arguments, check));
  }
  if (damaged == 0) return;
  const CheckpointError error(arguments.model + ": " + std::to_string(damaged) +
                              (damaged == 1 ? " tensor is damaged" : " tensors are damaged") +
                              "; fetch the files again, or choose a dtype that holds their values");
  if (as_json) throw PartialResult(std::make_exception_ptr(error), check_json(arguments, check));
  throw error;
}

// `joined` outlives the call; see Job.
int generate(const Arguments& arguments, std::optional<RankedCommand>& joined) {
  const Numbers numbers = check_numbers(arguments);
  const DType dtype = wanted_dtype(arguments.dtype);
  get_accelerator();
  const RankedCommand& job = joined.emplace();
  std::vector<std::string> prompts;
  job.together([&] {
    if (job.speaks()) prompts = all_prompts(arguments);
  });
  prompts = job.texts_of_rank_zero(prompts);
  const bool show_messages = !arguments.quiet && job.speaks();
  if (show_messages) {
    std::string summary = accelerator_choice_summary();
    if (!summary.empty() && summary.back() != '\n') summary += '\n';
    std::cerr << summary;
  }
  if (arguments.check_tensors) {
    job.together([&] {
      if (job.speaks()) check_weights(arguments, dtype, prompts.empty());
    });
    if (prompts.empty()) return 0;
  }
  std::optional<llm::TextGenerator> loaded;
  job.together([&] { loaded.emplace(load(arguments, dtype, job)); });
  llm::TextGenerator& generator = *loaded;
  llm::GenerateOptions options = generate_options(arguments, numbers, generator);
  if (!arguments.draft.empty()) {
    job.together([&] {
      llm::LoadOptions draft;
      draft.dtype = dtype;
      draft.activations = wanted_activations(arguments.activations);
      draft.map_files = !arguments.no_mmap;
      draft.group = job.group();
      options.speculation->model = llm::load_draft_model(arguments.draft, *generator.tokenizer(), draft);
    });
  }
  if (!job.speaks()) {
    try {
      generator.generate(prompts, options);
    } catch (const InvalidArgument&) {
      job.fail_silently();  // rank 0 finds the same error
    } catch (const NumericalError&) {
      job.fail_silently();
    } catch (const Error& error) {
      throw Error("rank " + std::to_string(job.group()->rank()) + ": " + error.what());
    }
    return 0;
  }

  // Pieces of several texts would mix, so only a single one streams.
  const bool stream = prompts.size() == 1 && !arguments.no_stream && !arguments.json;
  // The answer continues the prompt, so both are printed; the prompt only when there is an answer, and not before an error.
  bool prompt_is_due = prompts.size() == 1 && !arguments.json && !arguments.quiet;
  const auto print_prompt = [&] {
    if (std::exchange(prompt_is_due, false)) std::cout << prompts[0] << std::flush;
  };
  llm::TextCallback callback;
  if (stream) {
    callback = [&](size_t, std::string_view piece) {
      print_prompt();
      std::cout << piece << std::flush;
      return static_cast<bool>(std::cout);  // stops if the reader has closed the output
    };
  }
  const auto print = [&](const llm::GenerateResult& result) {
    print_prompt();
    if (arguments.json) {
      print_json(result_json(arguments, prompts, generator, result));
    } else if (stream) {
      std::cout << '\n' << std::flush;
    } else {
      print_texts(result);
    }
    if (show_messages) print_timings(result);
  };
  try {
    print(generator.generate(prompts, options, callback));
  } catch (const Error&) {
    const llm::GenerateResult* part = generator.interrupted();
    if (part && arguments.json) {
      throw PartialResult(std::current_exception(), result_json(arguments, prompts, generator, *part));
    }
    if (part) print(*part);
    throw;
  }
  return 0;
}

}  // namespace

int run_generate(int argc, char** argv) {
  CommandLine line("Loads a language model and streams the text that follows the prompts", "anyaccel generate");
  Arguments arguments;
  add_options(line, arguments);
  std::optional<RankedCommand> job;
  const int code = run_command(line, argc, argv, [&] {
    try {
      return generate(arguments, job);
    } catch (const FailedElsewhere&) {
      return 1;
    }
  });
  if (job) RankedCommand::end(code);
  return code;
}

}  // namespace anyaccel::cli
