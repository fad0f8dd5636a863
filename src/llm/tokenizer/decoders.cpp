// Implements the decoder steps and passes text through them.
#include "llm/tokenizer/decoders.h"

#include <algorithm>
#include <optional>

#include "anyaccel/error.h"
#include "base/text/utf8.h"
#include "llm/config/config_fields.h"
#include "llm/tokenizer/components.h"
#include "llm/tokenizer/regex.h"
#include "llm/tokenizer/stream.h"

namespace anyaccel::llm {

enum class DecoderKind { JoinWithSpaces, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Suffix, WordPiece };

struct TextDecoderStep {
  DecoderKind kind = DecoderKind::Fuse;
  bool joined = false;                 // an earlier step joins all tokens into one
  std::optional<TextPattern> pattern;  // Replace
  std::string content;                 // Replace: the new text. Strip, Metaspace: the character. Suffix: the suffix.
                                       // WordPiece: the prefix of a word's continuation.
  size_t start = 0;                    // Strip: maximum number of characters to remove
  size_t stop = 0;
  bool prefix_space = false;  // Metaspace: the first token's replacement character is removed
  bool cleanup = false;       // WordPiece: spaces before punctuation and English contractions are removed
};

struct DecoderRun::State {
  std::string held;
  bool first = true;       // no token has been received yet
  bool has_token = false;  // Suffix: `held` is a token
  size_t stripped = 0;     // Strip after a join: number of characters removed at the start
  bool stripping = true;
};

namespace {

constexpr std::string_view supported_decoders =
    "Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, BPEDecoder, WordPiece";
constexpr int64_t most_stripped = 1 << 20;
constexpr size_t most_steps = 16;

// Returns the size in bytes of the leading characters equal to `content`, at most `most` of them.
size_t leading_bytes(std::string_view text, std::string_view content, size_t most) {
  size_t bytes = 0;
  for (size_t i = 0; i < most && text.substr(bytes).starts_with(content); ++i) bytes += content.size();
  return bytes;
}

size_t trailing_bytes(std::string_view text, std::string_view content, size_t most) {
  size_t bytes = 0;
  for (size_t i = 0; i < most && text.substr(0, text.size() - bytes).ends_with(content); ++i) bytes += content.size();
  return bytes;
}

// Returns the byte that a token like "<0x41>" names, or -1.
int byte_token(std::string_view token) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Returns the bytes that a byte-level token stands for; a token with any other character stands for itself.
std::string bytes_of_token(std::string token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const int byte = byte_of_character(step.code);
    if (byte < 0) return token;
    bytes += static_cast<char>(byte);
    rest.remove_prefix(step.length);
  }
  return bytes;
}

// Removes the complete characters from `bytes` and returns them; invalid ones become U+FFFD.
std::string take_complete(std::string& bytes) {
  std::string text;
  size_t taken = 0;
  while (taken < bytes.size()) {
    const Utf8Step step = utf8_step(std::string_view(bytes).substr(taken));
    if (step.incomplete) break;
    text += step.valid ? std::string_view(bytes).substr(taken, step.length) : replacement_character;
    taken += step.length;
  }
  bytes.erase(0, taken);
  return text;
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  for (size_t at; (at = text.find(what)) != std::string_view::npos; text.remove_prefix(at + what.size())) {
    out += text.substr(0, at);
    out += with;
  }
  return out += text;
}

std::string replace_pattern(const TextDecoderStep& step, std::string_view text, PatternWork& work) {
  std::string out;
  for (const TextSpan& span : step.pattern->spans(text, work)) {
    out += span.is_match ? std::string_view(step.content) : text.substr(span.begin, span.end - span.begin);
    check_growth(text.size(), out.size());
  }
  return out;
}

std::string strip(const TextDecoderStep& step, std::string_view text) {
  text.remove_prefix(leading_bytes(text, step.content, step.start));
  text.remove_suffix(trailing_bytes(text, step.content, step.stop));
  return std::string(text);
}

// Makes the replacements of the reference (decoders/wordpiece.rs), in its order.
std::string without_extra_spaces(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : rules) text = replace_all(text, what, with);
  return text;
}

// `first` means that nothing was decoded before.
std::string word_piece(const TextDecoderStep& step, std::string text, bool first) {
  if (!first && text.starts_with(step.content)) {
    text.erase(0, step.content.size());
  } else if (!first) {
    text.insert(0, 1, ' ');
  }
  return step.cleanup ? without_extra_spaces(std::move(text)) : text;
}

TextDecoderStep read_step(const JsonRef& value) {
  const std::string& type = component_type(value);
  TextDecoderStep step;
  if (type == "ByteLevel") {
    step.kind = DecoderKind::ByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = DecoderKind::ByteFallback;
  } else if (type == "Fuse") {
    step.kind = DecoderKind::Fuse;
  } else if (type == "Metaspace") {
    step.kind = DecoderKind::Metaspace;
    step.content = read_character(value.at("replacement"));
    const auto scheme = value.find("prepend_scheme");
    step.prefix_space = scheme ? scheme->string() != "never" : read_flag(value, "add_prefix_space", true);
  } else if (type == "Replace") {
    step.kind = DecoderKind::Replace;
    step.pattern = read_pattern(value.at("pattern"));
    step.content = value.at("content").string();
  } else if (type == "Strip") {
    step.kind = DecoderKind::Strip;
    step.content = read_character(value.at("content"));
    step.start = static_cast<size_t>(value.at("start").integer(0, most_stripped));
    step.stop = static_cast<size_t>(value.at("stop").integer(0, most_stripped));
  } else if (type == "BPEDecoder") {
    step.kind = DecoderKind::Suffix;
    step.content = value.at("suffix").string();
    if (step.content.empty()) value.at("suffix").fail("a text that is not empty");
  } else if (type == "WordPiece") {
    step.kind = DecoderKind::WordPiece;
    step.content = value.at("prefix").string();
    step.cleanup = value.at("cleanup").boolean();
  } else {
    refuse_component(value, "decoder", supported_decoders);
  }
  return step;
}

}  // namespace

DecoderChain::DecoderChain(const JsonRef& value) {
  if (value.is_null()) {
    steps_.emplace_back().kind = DecoderKind::JoinWithSpaces;
  } else {
    read(value);
  }
  bool joined = false;
  for (TextDecoderStep& step : steps_) {
    step.joined = joined;
    joined = joined || step.kind == DecoderKind::ByteLevel || step.kind == DecoderKind::Fuse;
  }
}

DecoderChain::~DecoderChain() = default;

void DecoderChain::read(const JsonRef& value) {
  if (component_type(value) != "Sequence") {
    if (steps_.size() == most_steps) value.error("there are more than " + std::to_string(most_steps) + " decoders");
    steps_.push_back(read_step(value));
    return;
  }
  const JsonRef list = value.at("decoders");
  if (!list.is_array()) list.fail("a list");
  for (size_t i = 0; i < list.size(); ++i) read(list[i]);
}

std::string DecoderChain::token_bytes(std::string text, bool at_start) const {
  const auto refuse = [](const char* decoder) {
    throw NotImplementedError(std::string("the text of this tokenizer's tokens depends on their neighbours (decoder ") +
                              decoder + "); a grammar needs tokens that have a text of their own");
  };
  PatternWork work(text.size());
  bool is_byte = false;  // of a character that other tokens complete
  for (const TextDecoderStep& step : steps_) {
    switch (step.kind) {
      case DecoderKind::ByteLevel:
        if (step.joined) refuse("ByteLevel behind Fuse");
        text = bytes_of_token(std::move(text));
        break;
      case DecoderKind::ByteFallback:
        if (step.joined) refuse("ByteFallback behind Fuse");
        if (const int byte = byte_token(text); byte >= 0) {
          text.assign(1, static_cast<char>(byte));
          is_byte = byte >= 0x80;
        }
        break;
      case DecoderKind::Fuse: break;
      case DecoderKind::Metaspace:
        if (step.joined) refuse("Metaspace behind Fuse");
        text = replace_all(text, step.content, at_start && step.prefix_space ? "" : " ");
        break;
      case DecoderKind::Replace:
        if (step.joined) refuse("Replace behind Fuse");
        if (!is_byte) text = replace_pattern(step, text, work);
        break;
      case DecoderKind::Strip:
        if (!step.joined) {
          text = strip(step, text);
        } else if (step.stop > 0) {
          refuse("Strip at the end");
        } else if (at_start) {
          text.erase(0, leading_bytes(text, step.content, step.start));
        }
        break;
      case DecoderKind::JoinWithSpaces: refuse("none, which joins tokens with spaces"); break;
      case DecoderKind::Suffix: refuse("BPEDecoder"); break;
      case DecoderKind::WordPiece: refuse("WordPiece"); break;
    }
  }
  return text;
}

DecoderRun::DecoderRun(const DecoderChain& chain, bool streaming)
    : steps_(chain.steps()), streaming_(streaming), states_(steps_.size()) {}

DecoderRun::~DecoderRun() = default;

void DecoderRun::push(std::string token, std::string& out) {
  work_.allow(token.size());
  enter(0, std::move(token), out);
}

// Called when a run of byte tokens ends: they become text if they form characters, else one U+FFFD each.
void DecoderRun::leave_held_bytes(size_t step, std::string& out) {
  std::string& held = states_[step].held;
  if (held.empty()) return;
  const std::string run = std::exchange(held, {});
  if (is_valid_utf8(run)) {
    enter(step + 1, run, out);
  } else {
    for (size_t i = 0; i < run.size(); ++i) enter(step + 1, std::string(replacement_character), out);
  }
}

void DecoderRun::enter(size_t index, std::string text, std::string& out) {
  if (index == steps_.size()) {
    out += text;
    return;
  }
  const TextDecoderStep& step = steps_[index];
  if (step.joined) {
    enter_joined(index, std::move(text), out);
    return;
  }
  check_growth(0, text.size());
  State& state = states_[index];
  const bool first = std::exchange(state.first, false);
  switch (step.kind) {
    case DecoderKind::JoinWithSpaces: enter(index + 1, first ? std::move(text) : " " + text, out); break;
    case DecoderKind::ByteLevel:
      state.held += bytes_of_token(std::move(text));
      enter(index + 1, take_complete(state.held), out);
      break;
    case DecoderKind::ByteFallback: {
      const int byte = byte_token(text);
      if (byte < 0) {
        leave_held_bytes(index, out);
        enter(index + 1, std::move(text), out);
        break;
      }
      state.held += static_cast<char>(byte);
      if (streaming_ && state.held.size() >= longest_held_run) enter(index + 1, take_complete(state.held), out);
      break;
    }
    case DecoderKind::Fuse: enter(index + 1, std::move(text), out); break;
    case DecoderKind::Metaspace:
      enter(index + 1, replace_all(text, step.content, first && step.prefix_space ? "" : " "), out);
      break;
    case DecoderKind::Replace: enter(index + 1, replace_pattern(step, text, work_), out); break;
    case DecoderKind::Strip: enter(index + 1, strip(step, text), out); break;
    case DecoderKind::WordPiece: enter(index + 1, word_piece(step, std::move(text), first), out); break;
    case DecoderKind::Suffix:
      // The suffix of the last token is removed, not replaced by a space, so each token waits for the next one.
      if (state.has_token) enter(index + 1, replace_all(state.held, step.content, " "), out);
      state.held = std::move(text);
      state.has_token = true;
      break;
  }
}

void DecoderRun::enter_joined(size_t index, std::string text, std::string& out) {
  const TextDecoderStep& step = steps_[index];
  State& state = states_[index];
  if (step.kind == DecoderKind::Fuse) {
    enter(index + 1, std::move(text), out);
    return;
  }
  state.held += text;
  // All other steps need the whole text; Strip needs only its ends.
  if (step.kind != DecoderKind::Strip || state.held.empty()) return;
  if (state.stripping) {
    const size_t bytes = leading_bytes(state.held, step.content, step.start - state.stripped);
    state.stripped += bytes / step.content.size();
    state.held.erase(0, bytes);
    if (state.held.empty()) return;
    state.stripping = false;
  }
  const size_t kept = trailing_bytes(state.held, step.content, step.stop);
  std::string certain = state.held.substr(0, state.held.size() - kept);
  state.held.erase(0, certain.size());
  enter(index + 1, std::move(certain), out);
}

void DecoderRun::finish(std::string& out) {
  for (size_t index = 0; index < steps_.size(); ++index) {
    const TextDecoderStep& step = steps_[index];
    std::string held = std::exchange(states_[index].held, {});
    if (step.joined) {
      switch (step.kind) {
        case DecoderKind::Strip:  // the held characters are those to remove at the end
        case DecoderKind::JoinWithSpaces:
        case DecoderKind::Fuse: break;
        case DecoderKind::ByteLevel: enter(index + 1, repair_utf8(bytes_of_token(std::move(held))), out); break;
        case DecoderKind::ByteFallback: {
          const int byte = byte_token(held);
          if (byte >= 0x80) held = replacement_character;
          if (byte >= 0 && byte < 0x80) held = std::string(1, static_cast<char>(byte));
          enter(index + 1, std::move(held), out);
          break;
        }
        case DecoderKind::Metaspace:
          enter(index + 1, replace_all(held, step.content, step.prefix_space ? "" : " "), out);
          break;
        case DecoderKind::Replace: enter(index + 1, replace_pattern(step, held, work_), out); break;
        case DecoderKind::WordPiece: enter(index + 1, word_piece(step, std::move(held), true), out); break;
        case DecoderKind::Suffix: enter(index + 1, replace_all(held, step.content, ""), out); break;
      }
      continue;
    }
    switch (step.kind) {
      case DecoderKind::ByteLevel: enter(index + 1, repair_utf8(held), out); break;
      case DecoderKind::ByteFallback:
        states_[index].held = std::move(held);
        leave_held_bytes(index, out);
        break;
      case DecoderKind::Suffix:
        if (states_[index].has_token) enter(index + 1, replace_all(held, step.content, ""), out);
        break;
      default: break;
    }
  }
}

}  // namespace anyaccel::llm
