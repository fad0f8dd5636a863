// Implements `anyaccel chat`: a conversation with a chat model, in the format of its chat template. Earlier turns stay
// in the key/value cache, so that each turn runs only the new tokens.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/llm/chat_template.h"
#include "anyaccel/llm/text_generation.h"
#include "base/files/unfinished_files.h"
#include "base/text/json.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "cli/command_line.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/commands/model_options.h"
#include "cli/commands/sampling_options.h"

namespace anyaccel::cli {

namespace {

constexpr size_t max_conversation_bytes = size_t{256} << 20;

struct ChatArguments {
  std::string model;
  std::string system;
  std::string load;
  std::string tools;
  std::string variables;
  std::string template_name;
  std::string dtype = "auto";
  std::vector<std::string> adapters;
  std::vector<std::string> used_adapters;
  std::optional<std::string> max_new_tokens;
  SamplingOptions sampling;
  std::string context = "0";
  std::string cache = "auto";
  bool quiet = false;
};

void add_chat_options(CommandLine& line, ChatArguments& arguments) {
  line.add_option("--model", arguments.model, "Directory or .gguf file of a model that has a chat template")
      .required()
      .not_empty();
  line.add_option("--system", arguments.system, "What the assistant is told before the conversation");
  line.add_option(
          "--load", arguments.load,
          "Go on with this conversation: a JSON file as /save writes it. If it ends with the user, it is answered")
      .type("FILE")
      .not_empty();
  line.add_option("--tools", arguments.tools,
                  "A JSON file with the functions that the model may call, as in OpenAI's API")
      .type("FILE")
      .not_empty();
  line.add_option("--variables", arguments.variables,
                  "A JSON object of variables for the template, such as '{\"enable_thinking\": false}'")
      .type("JSON")
      .not_empty();
  line.add_option("--template", arguments.template_name, "Which template, of a model with several")
      .type("NAME")
      .not_empty();
  line.add_option("--max-new-tokens", arguments.max_new_tokens,
                  "Most tokens of an answer; else the rest of the context")
      .type("N");
  arguments.sampling.add(line);
  add_adapter_options(line, arguments.adapters, arguments.used_adapters, "Answer with the adapter of this name");
  line.add_option("--dtype", arguments.dtype, "auto (as in the file where supported), fp32, bf16 or fp16")
      .show_default();
  line.add_option("--context", arguments.context, "Most tokens of the conversation; 0 is the model's own limit")
      .type("N")
      .show_default();
  line.add_option("--kv-cache", arguments.cache,
                  "Elements of the cache of keys and values: auto (those of the model), int8 or fp8")
      .show_default();
  line.add_quiet_flag("--quiet", arguments.quiet, "Only the answers: nothing but errors on standard error");
  line.footer(
      "In the conversation, /help lists what can be typed. Ctrl-C ends an answer, and keeps what was said; a second "
      "one before the answer has ended ends the command.");
}

// Set by Ctrl-C. The signal may be delivered to any thread of the process, so a pipe wakes the thread that reads.
volatile sig_atomic_t interrupted = 0;
int wake_pipe[2] = {-1, -1};

int64_t milliseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

// A second Ctrl-C before the first one has had an effect, as while a long prompt is read, ends the process. One that comes at once
// is the first again: the terminal sends it to a program that starts this one, too, which may pass it on.
void on_interrupt(int number) {
  static std::atomic<int64_t> first{0};
  const int error = errno;
  if (!interrupted) {
    first = milliseconds_now();
  } else if (milliseconds_now() - first >= 200) {
    end_by_signal(number);
  }
  interrupted = 1;
  const char byte = 0;
  (void)!write(wake_pipe[1], &byte, 1);
  errno = error;
}

// Lets Ctrl-C set `interrupted` instead of ending the process at once.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) throw Error("no pipe for Ctrl-C could be opened");
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, &before_);
  }
  ~CatchInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

// Reads lines of standard input; a line that ends with a backslash continues in the next.
class Input {
 public:
  Input() : terminal_(isatty(STDIN_FILENO) != 0) {}

  // Returns nothing at the end of the input. Ctrl-C clears the line that is being typed.
  std::optional<std::string> message() {
    std::string text;
    prompt("> ");
    for (;;) {
      const std::optional<std::string> line = read_line();
      if (interrupted) {
        interrupted = 0;
        text.clear();
        pending_.clear();
        if (terminal_) std::fputs("\n(Ctrl-D or /exit leaves)\n", stderr);
        prompt("> ");
        continue;
      }
      if (!line) return text.empty() ? std::nullopt : std::optional(text);
      text += *line;
      if (!text.ends_with('\\')) return text;
      text.back() = '\n';
      prompt("… ");
    }
  }

 private:
  void prompt(const char* text) const {
    if (terminal_) std::fputs(text, stderr);
  }

  std::optional<std::string> read_line() {
    for (;;) {
      const size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return line;
      }
      if (pending_.size() > max_conversation_bytes) throw Error("a message has more than 256 MiB");
      pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {wake_pipe[0], POLLIN, 0}};
      poll(sources, 2, -1);
      char buffer[4096];
      while (read(wake_pipe[0], buffer, sizeof buffer) > 0) {
      }
      if (interrupted) return std::nullopt;  // the caller checks it
      if (sources[0].revents == 0) continue;
      const ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
      if (count > 0) {
        pending_.append(buffer, static_cast<size_t>(count));
        continue;
      }
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count < 0) throw Error("standard input cannot be read: " + std::string(std::strerror(errno)));
      if (pending_.empty()) return std::nullopt;
      return std::exchange(pending_, {});
    }
  }

  bool terminal_;
  std::string pending_;
};

std::string read_json_file(const std::string& path) { return read_whole_file(path, max_conversation_bytes); }

// Holds the conversation as a JSON array of messages, since templates use fields beyond role and content.
class Conversation {
 public:
  explicit Conversation(std::string system) : system_(std::move(system)) { reset(); }

  void reset() {
    messages_.clear();
    if (!system_.empty()) add("system", system_);
  }
  // Starts a new conversation.
  void set_system(std::string system) {
    system_ = std::move(system);
    reset();
  }
  void add(std::string_view role, std::string_view content) {
    messages_.push_back(JsonValue({{"role", std::string(role)}, {"content", std::string(content)}}));
  }
  void drop_last() { messages_.pop_back(); }
  bool ends_with_user() const {
    if (messages_.empty()) return false;
    const JsonValue* role = messages_.back().find("role");
    const auto* text = role == nullptr ? nullptr : std::get_if<std::string>(&role->data);
    return text != nullptr && (*text == "user" || *text == "tool");
  }
  size_t size() const { return messages_.size(); }
  std::string json(int indent = -1) const { return json_text(JsonValue(messages_), indent, BadUtf8::Replace); }

  void load(const std::string& path) {
    const JsonDocument document = JsonDocument::parse(read_json_file(path), path);
    const JsonRef root = document.root();
    if (!root.is_array()) root.fail("an array of messages");
    JsonArray messages;
    for (size_t i = 0; i < root.size(); ++i) {
      root[i].at("role").string();
      messages.push_back(root[i].value());
    }
    messages_ = std::move(messages);
  }
  void save(const std::string& path) const {
    std::error_code error;  // the file cannot be created then, which write_output_file() reports
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    const std::string problem = write_output_file(path, json(2) + "\n");
    if (!problem.empty()) throw Error(path + ": the conversation cannot be written: " + problem);
  }

 private:
  std::string system_;
  JsonArray messages_;
};

class Chat {
 public:
  explicit Chat(const ChatArguments& arguments)
      : arguments_(arguments), conversation_(arguments.system), template_(load_template(arguments.model)) {
    arguments.sampling.check();
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    max_new_tokens_ =
        arguments.max_new_tokens ? parse_integer("--max-new-tokens", *arguments.max_new_tokens, 1, most) : most;
    context_ = parse_integer("--context", arguments.context, 0, most);
    cache_ = wanted_cache(arguments.cache);
    chat_options_.name = arguments.template_name;
    chat_options_.variables_json = arguments.variables;
    if (!arguments.tools.empty()) chat_options_.tools_json = read_json_file(arguments.tools);
    if (!arguments.load.empty()) conversation_.load(arguments.load);
    // This detects a template that rejects the system message or the tools before the weights are loaded.
    if (conversation_.ends_with_user()) template_.render_json(conversation_.json(), chat_options_);
  }

  void load_model() {
    llm::LoadOptions options;
    options.dtype = wanted_dtype(arguments_.dtype);
    apply_adapters(arguments_.adapters, arguments_.used_adapters, options);
    if (arguments_.used_adapters.size() > 1) throw UsageError("--use-adapter gives several adapters; expected one");
    generator_.emplace(load_generator(arguments_.model, options, !arguments_.quiet));
    set_options();
    if (!arguments_.quiet) print_model_summary(arguments_.model, "", *generator_);
  }

  void run() {
    const CatchInterrupt interrupts;
    if (conversation_.ends_with_user()) answer();
    Input input;
    while (std::cout) {  // run_command() reports what became of it
      const std::optional<std::string> line = input.message();
      if (!line) return;
      const std::string text(trimmed(*line));
      if (text.empty()) continue;
      if (text.starts_with('/') && !text.starts_with("//")) {
        if (!command(text)) return;
        continue;
      }
      if (!is_valid_utf8(*line)) {
        // If the input is not interactive, an error ends the command: the answers that follow would be to other messages.
        if (isatty(STDIN_FILENO) == 0) throw InvalidArgument("this message is not UTF-8; it was not sent");
        std::fputs("anyaccel: this message is not UTF-8; it was not sent\n", stderr);
        continue;
      }
      conversation_.add("user", text.starts_with("//") ? line->substr(line->find('/') + 1) : *line);
      answer();
    }
  }

 private:
  static llm::ChatTemplate load_template(const std::string& model) {
    std::optional<llm::ChatTemplate> loaded = llm::ChatTemplate::load(model);
    if (loaded) return std::move(*loaded);
    throw CheckpointError(
        model +
        ": the model has no chat template (chat_template.jinja, chat_template in tokenizer_config.json, "
        "or tokenizer.chat_template of a GGUF file); it continues texts: use anyaccel generate");
  }

  void set_options() {
    options_ = generator_->default_options();
    arguments_.sampling.apply(options_, *generator_->tokenizer());
    options_.max_length = 0;
    options_.max_new_tokens = max_new_tokens_;
    options_.context = context_;
    options_.cache = cache_;
    options_.adapters = arguments_.used_adapters;
    options_.add_special_tokens = false;  // the template writes them
    options_.reuse_cache = true;
    if (const auto eos = generator_->tokenizer()->eos_id()) options_.more_eos_ids.push_back(*eos);
  }

  // Answers the user's message that the conversation ends with. If that fails, the message is taken back.
  void answer() {
    const size_t before = conversation_.size();
    std::string said;
    try {
      const std::string prompt = template_.render_json(conversation_.json(), chat_options_);
      const auto print = [&](size_t, std::string_view piece) {
        said += piece;
        std::cout << piece << std::flush;
        return static_cast<bool>(std::cout) && !interrupted;
      };
      const llm::GenerateResult result = generator_->generate(std::vector<std::string>{prompt}, options_, print);
      std::cout << '\n' << std::flush;
      const llm::Completion& completion = result.completions[0];
      const bool cut = interrupted != 0;
      interrupted = 0;
      if (!arguments_.quiet) {
        std::fprintf(stderr, "(%s%lld tokens read, %lld written, %.1f tokens/s)\n",
                     cut ? "stopped; "
                     : completion.finish_reason == llm::FinishReason::Length
                         ? "the end of the context or of --max-new-tokens; "
                         : "",
                     static_cast<long long>(result.timings.prompt_tokens),
                     static_cast<long long>(completion.token_ids.size()), result.timings.decode_rate());
      }
      ++*options_.seed;  // the next answer uses different random numbers
      conversation_.add("assistant", said);
    } catch (const Error& error) {
      if (conversation_.size() == before) conversation_.drop_last();
      if (!said.empty()) std::cout << '\n' << std::flush;
      // If the input is not interactive, an error ends the command.
      if (isatty(STDIN_FILENO) == 0) throw;
      std::fprintf(stderr, "anyaccel: error: %s\n(the message was taken back; /reset begins anew)\n", error.what());
    }
  }

  // Returns false to leave.
  bool command(const std::string& text) {
    const size_t space = text.find(' ');
    const std::string name = text.substr(0, space);
    const std::string argument(space == std::string::npos ? std::string_view()
                                                          : trimmed(std::string_view(text).substr(space)));
    const auto needs = [&](const char* what) {
      if (argument.empty()) throw UsageError(name + " needs " + what);
    };
    try {
      if (name == "/exit" || name == "/quit") return false;
      if (name == "/help") {
        std::fputs(
            "/system TEXT  begin anew with this text for the assistant\n"
            "/reset        begin anew\n"
            "/adapter NAME answer with this adapter (--adapter NAME=DIR); without a name with none\n"
            "/save FILE    write the conversation as JSON\n"
            "/load FILE    go on with a saved conversation\n"
            "/exit         leave, as Ctrl-D does\n"
            "//...         a message that begins with a slash\n"
            "A line that ends with a backslash continues on the next one. Ctrl-C ends an answer;\n"
            "a second one before it has ended ends the command.\n",
            stderr);
      } else if (name == "/system") {
        conversation_.set_system(argument);
      } else if (name == "/reset") {
        conversation_.reset();
      } else if (name == "/adapter") {
        generator_->model().find_adapter(argument);
        options_.adapters = {argument};
      } else if (name == "/save") {
        needs("the name of a file");
        conversation_.save(argument);
        if (!arguments_.quiet) std::fprintf(stderr, "(%zu messages saved)\n", conversation_.size());
      } else if (name == "/load") {
        needs("the name of a file");
        conversation_.load(argument);
        if (!arguments_.quiet) std::fprintf(stderr, "(%zu messages loaded)\n", conversation_.size());
        if (conversation_.ends_with_user()) answer();
      } else {
        throw UsageError("there is no " + name + "; /help lists what there is, and // begins a message with a slash");
      }
    } catch (const std::exception& error) {
      if (isatty(STDIN_FILENO) == 0) throw;
      std::fprintf(stderr, "anyaccel: %s\n", error.what());
    }
    return true;
  }

  const ChatArguments& arguments_;
  int64_t max_new_tokens_ = 0;
  int64_t context_ = 0;
  llm::CacheType cache_ = llm::CacheType::Model;
  Conversation conversation_;
  llm::ChatTemplate template_;
  llm::ChatOptions chat_options_;
  std::optional<llm::TextGenerator> generator_;
  llm::GenerateOptions options_;
};

int chat(const ChatArguments& arguments) {
  require_one_process("chat");
  get_accelerator();
  if (!arguments.quiet) {
    std::string summary = accelerator_choice_summary();
    if (!summary.empty() && summary.back() != '\n') summary += '\n';
    std::cerr << summary;
  }
  Chat session(arguments);
  session.load_model();
  session.run();
  return 0;
}

}  // namespace

int run_chat(int argc, char** argv) {
  CommandLine line("Holds a conversation with a chat model", "anyaccel chat");
  ChatArguments arguments;
  add_chat_options(line, arguments);
  return run_command(line, argc, argv, [&] { return chat(arguments); });
}

}  // namespace anyaccel::cli
