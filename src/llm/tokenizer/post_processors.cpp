// Implements the post-processors of tokenizer.json, for one text (not for pairs).
#include "llm/tokenizer/components.h"

namespace anyaccel::llm {
namespace {

constexpr std::string_view supported_post_processors =
    "Sequence, BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing";

// Changes only token offsets in the text, which are not used here.
class NoPostProcessor : public PostProcessor {
 public:
  void apply(std::vector<int32_t>&, bool) const override {}
};

class SequencePostProcessor : public PostProcessor {
 public:
  SequencePostProcessor(const JsonRef& value, int64_t max_id) {
    const JsonRef list = value.at("processors");
    if (!list.is_array()) list.fail("a list");
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_null()) steps_.push_back(read_post_processor(list[i], max_id));
    }
  }
  void apply(std::vector<int32_t>& ids, bool add_special) const override {
    for (const auto& step : steps_) step->apply(ids, add_special);
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> steps_;
};

class TemplatePostProcessor : public PostProcessor {
 public:
  TemplatePostProcessor(std::vector<int32_t> before, std::vector<int32_t> after)
      : before_(std::move(before)), after_(std::move(after)) {}
  TemplatePostProcessor(const JsonRef& value, int64_t max_id) {
    const JsonRef list = value.at("single");
    if (!list.is_array()) list.fail("a list");
    bool has_text = false;
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonRef piece = list[i];
      if (!piece.is_object() || piece.size() != 1) piece.fail("an object with \"SpecialToken\" or \"Sequence\"");
      const JsonRef content = piece.member(0);
      if (piece.key(0) == "SpecialToken") {
        const JsonRef token = value.at("special_tokens").at(content.at("id").string());
        const JsonRef ids = token.at("ids");
        if (!ids.is_array()) ids.fail("a list of ids");
        std::vector<int32_t>& target = has_text ? after_ : before_;
        for (size_t k = 0; k < ids.size(); ++k) target.push_back(static_cast<int32_t>(ids[k].integer(0, max_id)));
      } else if (piece.key(0) == "Sequence") {
        if (content.at("id").string() != "A") content.at("id").fail("\"A\"");
        if (has_text) piece.error("the text occurs twice in the template, which is not supported");
        has_text = true;
      } else {
        piece.fail("an object with \"SpecialToken\" or \"Sequence\"");
      }
    }
    if (!has_text) list.error("the template has no place for the text; expected {\"Sequence\": {\"id\": \"A\"}}");
  }
  void apply(std::vector<int32_t>& ids, bool add_special) const override {
    if (!add_special) return;
    ids.insert(ids.begin(), before_.begin(), before_.end());
    ids.insert(ids.end(), after_.begin(), after_.end());
  }

 private:
  std::vector<int32_t> before_;
  std::vector<int32_t> after_;
};

}  // namespace

std::unique_ptr<PostProcessor> make_template(std::vector<int32_t> before, std::vector<int32_t> after) {
  return std::make_unique<TemplatePostProcessor>(std::move(before), std::move(after));
}

std::unique_ptr<PostProcessor> read_post_processor(const JsonRef& value, int64_t max_id) {
  if (value.is_null()) return nullptr;
  const std::string& type = component_type(value);
  if (type == "Sequence") return std::make_unique<SequencePostProcessor>(value, max_id);
  if (type == "TemplateProcessing") return std::make_unique<TemplatePostProcessor>(value, max_id);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto end = [&](std::string_view key) {
      const JsonRef token = value.at(key);
      if (!token.is_array() || token.size() != 2) token.fail("a token and its id");
      return std::vector<int32_t>{static_cast<int32_t>(token[1].integer(0, max_id))};
    };
    return make_template(end("cls"), end("sep"));
  }
  if (type == "ByteLevel") return std::make_unique<NoPostProcessor>();
  refuse_component(value, "post-processor", supported_post_processors);
}

}  // namespace anyaccel::llm
