// Compares chat templates with what transformers and Jinja made of them (tools/chat_fixtures.py), and checks that
// hostile templates end with an error.
#include "anyaccel/llm/chat_template.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "anyaccel/error.h"
#include "llm/test_directory.h"
#include "this_build.h"

namespace anyaccel::llm::chat_templates {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::filesystem::path data = std::filesystem::path(ANYACCEL_TEST_DATA) / "chat";

const Json& expected() {
  static const Json value = Json::parse(read_file(data / "expected.json"));
  return value;
}

std::vector<std::pair<std::string, std::string>> tokens() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, text] : expected()["tokens"].items()) out.emplace_back(name, text.get<std::string>());
  return out;
}

// The result of rendering: "text: ...", "rejected: ..." with the template's message, or "error".
template <typename Render>
std::string outcome(Render render) {
  try {
    return "text: " + render();
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    const std::string_view mark = "rejects the conversation: ";
    const size_t at = message.find(mark);
    return at == std::string::npos ? "invalid: " + message : "rejected: " + message.substr(at + mark.size());
  } catch (const CheckpointError& error) {
    return std::string("error");
  }
}

std::string wanted_outcome(const Json& entry) {
  if (entry.contains("text")) return "text: " + entry["text"].get<std::string>();
  if (entry.contains("rejected")) return "rejected: " + entry["rejected"].get<std::string>();
  return "error";
}

class ChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(ChatTemplateTest, ConversationsAreThoseOfTransformers) {
  std::map<std::string, ChatTemplate> templates;
  for (const auto& file : std::filesystem::directory_iterator(data / "templates")) {
    templates.emplace(file.path().stem().string(),
                      ChatTemplate::parse(read_file(file.path()), file.path().string(), tokens()));
  }
  EXPECT_GE(templates.size(), 15U);
  size_t compared = 0;
  for (const Json& entry : expected()["rendered"]) {
    ChatOptions options;
    options.now = expected()["now"].get<std::time_t>();
    Json variables = Json::object();
    for (const auto& [name, value] : entry["variant"].items()) {
      if (name == "tools") {
        options.tools_json = value.dump();
      } else if (name == "add_generation_prompt") {
        options.add_generation_prompt = value.get<bool>();
      } else {
        variables[name] = value;
      }
    }
    options.variables_json = variables.dump();
    const Json& messages = expected()["conversations"][entry["conversation"].get<std::string>()];
    const ChatTemplate& chat = templates.at(entry["template"].get<std::string>());
    EXPECT_EQ(outcome([&] { return chat.render_json(messages.dump(), options); }), wanted_outcome(entry))
        << entry["template"] << " " << entry["conversation"] << " " << entry["variant"].dump();
    ++compared;
  }
  EXPECT_GT(compared, 300U);
}

TEST_F(ChatTemplateTest, ExpressionsAreThoseOfJinja) {
  ChatOptions options;
  options.variables_json = expected()["variables"].dump();
  size_t compared = 0;
  for (const Json& entry : expected()["expressions"]) {
    const std::string text = entry["template"].get<std::string>();
    EXPECT_EQ(outcome([&] { return ChatTemplate::parse(text, "template").render({}, options); }), wanted_outcome(entry))
        << text;
    ++compared;
  }
  EXPECT_GT(compared, 1000U);
}

// Returns the rendered text, or the error message.
std::string rendered(const std::string& text, const ChatOptions& options = {}) {
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  try {
    return ChatTemplate::parse(text, "template").render(messages, options);
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

// Each would take minutes, gigabytes or a stack without end, and ends at the limit on steps.
TEST_F(ChatTemplateTest, EndlessTemplatesEndWithAnError) {
  for (const char* text :
       {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set ns.l = [ns.l, ns.l] %}{% "
        "endfor %}{{ ns.l }}"}) {
    EXPECT_EQ(rendered(text).substr(0, 6), "error:") << text;
  }
}

TEST_F(ChatTemplateTest, HostileTemplatesEndWithAnError) {
  // Values nested so deeply that a function which calls itself for each of them has no stack left.
  const bool larger_frames = test::sanitizer() == test::Sanitizer::address;
  const std::string deep = larger_frames ? "range(20000)" : "range(100000)";
  const std::string nested(100'000, '(');
  std::string chain = "1";
  for (int i = 0; i < 50'000; ++i) chain += "+1";
  std::string attributes = "messages";
  for (int i = 0; i < 50'000; ++i) attributes += ".x";
  std::string blocks;
  for (int i = 0; i < 10'000; ++i) blocks += "{% if true %}";
  for (const std::string& text : {
           std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
           std::string("{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('aaaaaaaa') }}"),
           std::string("{{ 'a' * 100000000000 }}"),
           std::string("{{ [0] * 100000000000 }}"),
           std::string("{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s ~ "
                       "ns.s %}{% endfor %}"),
           std::string("{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ "
                       "ns.l == [ns.l] }}"),
           "{% set ns = namespace(l=()) %}{% for i in " + deep +
               " %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}",
           "{% set ns = namespace(l=()) %}{% for i in " + deep +
               " %}{% set ns.l = namespace(l=ns.l) %}{% endfor %}{{ 1 // 0 }}",
           "{% set ns = namespace(l=1) %}{% for i in " + deep +
               " %}{% set ns.l = {1: ns.l}.get %}{% endfor %}{{ 1 // 0 }}",
           "{% set ns = namespace(l=1) %}{% for i in " + deep +
               " %}{% for x in [ns.l] %}{% set ns.l = loop %}{% endfor %}{% endfor %}{{ 1 // 0 }}",
           std::string("{{ range(1000000000) }}"),
           std::string("{{ 'x'.ljust(100000000000) }}"),
           std::string("{{ '%999999999d' % 1 }}"),
           std::string("{{ 'aaaa'|replace('', ('b' * 6000) * 10000) }}"),
           std::string("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"),
           std::string("{{ 2 ** 64 }}"),
           std::string("{{ 9223372036854775807 + 1 }}"),
           std::string("{{ -9223372036854775807 - 2 }}"),
           "{{ " + nested + " }}",
           "{{ " + chain + " }}",
           "{{ " + attributes + " }}",
           blocks,
           "{{ " + std::string(100'000, '-') + "1 }}",
           "{{ " + std::string(100'000, '[') + " }}",
           "{% if " + std::string(50'000, ' ') + "not " + nested + " %}",
       }) {
    EXPECT_EQ(rendered(text).substr(0, 6), "error:") << text.substr(0, 80);
  }
}

TEST_F(ChatTemplateTest, ErrorsNameTheFileAndTheLine) {
  EXPECT_EQ(rendered("a\n\n{{ messages[0].missing.more }}"),
            "error: template: the chat template failed: line 3: 'dict object' has no attribute 'missing'");
  EXPECT_EQ(
      rendered("{% include 'secret' %}"),
      "error: template: the chat template cannot be used: line 1: 'include' would read other templates, which a chat "
      "template cannot");
  EXPECT_EQ(rendered("\n{{ messages | nosuch }}"),
            "error: template: the chat template cannot be used: line 2: there is no filter 'nosuch'");
  EXPECT_EQ(rendered("{{ raise_exception('only users') }}"),
            "error: template: the chat template rejects the conversation: only users");
  ChatOptions options;
  options.name = "rag";
  EXPECT_EQ(rendered("", options), "error: there is no chat template \"rag\"; the model has \"default\"");
  options = {};
  options.tools_json = "{}";
  EXPECT_EQ(rendered("", options), "error: tools: expected a JSON array, found \"{}\"");
}

TEST_F(ChatTemplateTest, OneTemplateServesManyThreads) {
  const ChatTemplate chat =
      ChatTemplate::parse("{% for m in messages %}{{ m.content ~ loop.index }}{% endfor %}", "template");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      const std::vector<ChatMessage> messages(50, {"user", std::to_string(t)});
      for (int i = 0; i < 20; ++i) texts[t] = chat.render(messages);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < texts.size(); ++t)
    EXPECT_EQ(texts[t].substr(0, 4), std::to_string(t) + "1" + std::to_string(t) + "2");
}

// A directory with the files of the bundled model, as far as a tokenizer needs them.
class ChatDirectoryTest : public ChatTemplateTest {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((directory_.path() / name).parent_path());
    std::ofstream(directory_.path() / name, std::ios::binary) << text;
  }
  std::string render(const ChatOptions& options = {}) const {
    const std::optional<ChatTemplate> chat = ChatTemplate::load(directory_.path());
    if (!chat) return "none";
    const std::vector<ChatMessage> messages = {{"user", "Hi"}};
    return chat->render(messages, options);
  }

  testing::TestDirectory directory_;
};

TEST_F(ChatDirectoryTest, TheTemplateComesFromTheFilesThatTransformersReads) {
  EXPECT_EQ(render(), "none");
  write("tokenizer_config.json", R"({"bos_token": "<b>", "eos_token": {"content": "<e>", "special": true},
      "chat_template": "config {{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
  EXPECT_EQ(render(), "config <b>Hi<e>");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "tools {{ tools|length }}"}]})");
  EXPECT_EQ(render(), "plain");
  ChatOptions options;
  options.tools_json = R"([{"type": "function"}])";
  EXPECT_EQ(render(options), "tools 1");
  options.name = "default";
  EXPECT_EQ(render(options), "plain");
  write("chat_template.jinja", "file");
  write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(render(), "file");
  options = {};
  options.name = "rag";
  EXPECT_EQ(render(options), "rag");
  write("chat_template.jinja", "{% for %}");
  EXPECT_THROW(render(), CheckpointError);
}

}  // namespace
}  // namespace anyaccel::llm::chat_templates
