// Turns rules into states, refuses those that cannot be used, and follows texts through the states.
#include "llm/grammar/grammar_states.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>

#include "anyaccel/error.h"
#include "anyaccel/llm/grammar.h"
#include "base/text/json.h"

namespace anyaccel::llm {

namespace {

constexpr size_t max_states = 400'000;
constexpr size_t max_points = 20'000;     // of one position
constexpr size_t max_stacks = 4'000'000;  // distinct ones in the life of a machine
constexpr GrammarMachine::Position unknown = GrammarMachine::dead - 1;

// Calls `take` with the ranges of bytes of UTF-8 that make up the characters from `first` to `last`, whose forms have
// the same length.
template <class Take>
void split_utf8(char32_t first, char32_t last, const Take& take) {
  const int length = first < 0x80 ? 1 : first < 0x800 ? 2 : first < 0x10000 ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      split_utf8(first, first | low, take);
      split_utf8((first | low) + 1, last, take);
      return;
    }
    if ((last & low) != low) {
      split_utf8(first, (last & ~low) - 1, take);
      split_utf8(last & ~low, last, take);
      return;
    }
  }
  std::vector<std::pair<uint8_t, uint8_t>> bytes;
  constexpr uint8_t heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = length - 1; i >= 0; --i) {
    const auto byte = [&](char32_t code) {
      const char32_t bits = code >> (6 * i);
      if (i == length - 1) return static_cast<uint8_t>(heads[length] | bits);
      return static_cast<uint8_t>(0x80 | (bits & 0x3F));
    };
    bytes.emplace_back(byte(first), byte(last));
  }
  take(bytes);
}

}  // namespace

GrammarStates::GrammarStates(const GrammarRules& rules) : source_(rules.source) {
  for (size_t i = 0; i < rules.rules.size(); ++i) begins_.push_back(add_state());
  for (size_t i = 0; i < rules.rules.size(); ++i) states_[add(rules.rules[i].body, begins_[i])].final = true;
  root_ = rules.root;
  mark_returns();
  refuse_left_recursion(rules);
  refuse_endless(rules);
}

uint32_t GrammarStates::add_state() {
  if (states_.size() == max_states) {
    throw InvalidArgument(source_ + ": the grammar needs more than " + std::to_string(max_states) +
                          " states; expected fewer repetitions or shorter lists");
  }
  states_.emplace_back();
  return static_cast<uint32_t>(states_.size() - 1);
}

uint32_t GrammarStates::add(const Expression& expression, uint32_t from) {
  switch (expression.kind) {
    case Expression::Kind::Bytes:
      for (const char c : expression.bytes) {
        const uint32_t to = add_state();
        const auto byte = static_cast<uint8_t>(c);
        states_[from].edges.push_back({byte, byte, to});
        from = to;
      }
      return from;
    case Expression::Kind::Characters: return add_characters(expression.ranges, from);
    case Expression::Kind::Rule: {
      const uint32_t to = add_state();
      states_[from].calls.push_back({expression.rule, to});
      return to;
    }
    case Expression::Kind::Sequence:
      for (const Expression& part : expression.parts) from = add(part, from);
      return from;
    case Expression::Kind::Choice: return add_choice(expression, from);
    case Expression::Kind::Repeat: return add_repeat(expression, from);
  }
  return from;
}

uint32_t GrammarStates::add_choice(const Expression& expression, uint32_t from) {
  const uint32_t to = add_state();
  std::map<std::pair<uint32_t, uint8_t>, uint32_t> shared;
  std::optional<uint32_t> literals;
  for (const Expression& part : expression.parts) {
    const bool is_literal = part.kind == Expression::Kind::Bytes && !part.bytes.empty();
    // Each part has a first state of its own, because a repetition leads back to where it began.
    const uint32_t begin = is_literal && literals ? *literals : add_state();
    if (!is_literal || !literals) states_[from].empty.push_back(begin);
    if (!is_literal) {
      const uint32_t end = add(part, begin);
      states_[end].empty.push_back(to);
      continue;
    }
    literals = begin;
    uint32_t at = begin;
    for (const char c : part.bytes) {
      const auto byte = static_cast<uint8_t>(c);
      const auto [place, is_first] = shared.try_emplace({at, byte}, 0);
      if (is_first) {
        place->second = add_state();
        states_[at].edges.push_back({byte, byte, place->second});
      }
      at = place->second;
    }
    if (states_[at].empty.empty()) states_[at].empty.push_back(to);
  }
  return to;
}

uint32_t GrammarStates::add_characters(const std::vector<CharacterRange>& ranges, uint32_t from) {
  const uint32_t to = add_state();
  const auto add_sequence = [&](const std::vector<std::pair<uint8_t, uint8_t>>& bytes) {
    uint32_t at = from;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const uint32_t next = i + 1 == bytes.size() ? to : add_state();
      states_[at].edges.push_back({bytes[i].first, bytes[i].second, next});
      at = next;
    }
  };
  // Characters of one length in bytes; surrogates are no characters.
  constexpr CharacterRange parts[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  for (const CharacterRange& range : ranges) {
    for (const CharacterRange& part : parts) {
      const char32_t first = std::max(range.first, part.first);
      const char32_t last = std::min(range.last, part.last);
      if (first <= last) split_utf8(first, last, add_sequence);
    }
  }
  return to;
}

uint32_t GrammarStates::add_repeat(const Expression& expression, uint32_t from) {
  const Expression& part = expression.parts[0];
  for (int64_t i = 0; i < expression.least; ++i) {
    const uint32_t end = add(part, from);
    if (end == from) break;  // the part is the empty text
    from = end;
  }
  if (expression.most < 0) {
    const uint32_t loop = add_state();
    states_[from].empty.push_back(loop);
    const uint32_t end = add(part, loop);
    states_[end].empty.push_back(loop);
    const uint32_t to = add_state();
    states_[loop].empty.push_back(to);
    return to;
  }
  const uint32_t to = add_state();
  for (int64_t i = expression.least; i < expression.most; ++i) {
    states_[from].empty.push_back(to);
    const uint32_t begin = add_state();
    states_[from].empty.push_back(begin);
    from = add(part, begin);
  }
  states_[from].empty.push_back(to);
  return to;
}

// A state from which nothing leads but an end. Calls whose state to return to is such a state need no place in the
// stack, so that a rule that ends with itself, such as a list, does not let the stack grow.
void GrammarStates::mark_returns() {
  for (State& state : states_) {
    const State* at = &state;
    for (int steps = 0; steps < 16 && at->edges.empty() && at->calls.empty(); ++steps) {
      if (at->empty.empty()) {
        state.returns = at->final;
        break;
      }
      if (at->final || at->empty.size() != 1) break;
      at = &states_[at->empty[0]];
    }
  }
}

std::vector<bool> GrammarStates::rules_that_end(bool without_bytes) const {
  std::vector<bool> ends(begins_.size(), false);
  // A rule is walked again when one that it waits for has turned out to end.
  std::vector<std::vector<uint32_t>> waiting(begins_.size());
  std::vector<uint32_t> work;
  for (size_t i = begins_.size(); i-- > 0;) work.push_back(static_cast<uint32_t>(i));
  std::vector<uint32_t> visited(states_.size(), 0);
  uint32_t round = 0;
  while (!work.empty()) {
    const uint32_t rule = work.back();
    work.pop_back();
    if (ends[rule]) continue;
    ++round;
    std::vector<uint32_t> open = {begins_[rule]};
    const auto visit = [&](uint32_t state) {
      if (std::exchange(visited[state], round) != round) open.push_back(state);
    };
    bool found = false;
    std::vector<uint32_t> missing;
    while (!open.empty() && !found) {
      const State& state = states_[open.back()];
      open.pop_back();
      found = state.final;
      for (const uint32_t to : state.empty) visit(to);
      if (!without_bytes) {
        for (const Edge& edge : state.edges) visit(edge.to);
      }
      for (const Call& call : state.calls) {
        if (ends[call.rule]) {
          visit(call.to);
        } else {
          missing.push_back(call.rule);
        }
      }
    }
    if (!found) {
      for (const uint32_t other : missing) waiting[other].push_back(rule);
      continue;
    }
    ends[rule] = true;
    work.insert(work.end(), waiting[rule].begin(), waiting[rule].end());
    waiting[rule].clear();
  }
  return ends;
}

void GrammarStates::refuse_endless(const GrammarRules& rules) const {
  const std::vector<bool> ends = rules_that_end(/*without_bytes=*/false);
  std::vector<bool> reached(begins_.size(), false);
  std::vector<uint32_t> open = {root_};
  reached[root_] = true;
  std::vector<bool> visited(states_.size(), false);
  while (!open.empty()) {
    const uint32_t rule = open.back();
    open.pop_back();
    if (!ends[rule]) {
      throw InvalidArgument(source_ + ": the rule " + quote_text(rules.rules[rule].name) +
                            " never ends: every way through it comes back to it, or needs a character that does not "
                            "exist; expected a way that ends");
    }
    std::vector<uint32_t> states = {begins_[rule]};
    while (!states.empty()) {
      const uint32_t at = states.back();
      states.pop_back();
      if (visited[at]) continue;
      visited[at] = true;
      const State& state = states_[at];
      states.insert(states.end(), state.empty.begin(), state.empty.end());
      for (const Edge& edge : state.edges) states.push_back(edge.to);
      for (const Call& call : state.calls) {
        states.push_back(call.to);
        if (!reached[call.rule]) open.push_back(call.rule);
        reached[call.rule] = true;
      }
    }
  }
}

std::vector<uint32_t> GrammarStates::first_calls(uint32_t rule, const std::vector<bool>& nullable) const {
  std::vector<uint32_t> calls;
  std::vector<uint32_t> open = {begins_[rule]};
  std::unordered_set<uint32_t> visited(open.begin(), open.end());
  const auto visit = [&](uint32_t state) {
    if (visited.insert(state).second) open.push_back(state);
  };
  while (!open.empty()) {
    const State& state = states_[open.back()];
    open.pop_back();
    for (const uint32_t to : state.empty) visit(to);
    for (const Call& call : state.calls) {
      calls.push_back(call.rule);
      if (nullable[call.rule]) visit(call.to);
    }
  }
  return calls;
}

void GrammarStates::refuse_left_recursion(const GrammarRules& rules) const {
  const std::vector<bool> nullable = rules_that_end(/*without_bytes=*/true);
  enum : uint8_t { Unseen, Open, Done };
  std::vector<uint8_t> mark(begins_.size(), Unseen);
  struct Frame {
    uint32_t rule;
    std::vector<uint32_t> calls;
    size_t next = 0;
  };
  for (uint32_t first = 0; first < begins_.size(); ++first) {
    if (mark[first] != Unseen) continue;
    std::vector<Frame> path;
    const auto enter = [&](uint32_t rule) {
      mark[rule] = Open;
      path.push_back({rule, first_calls(rule, nullable)});
    };
    enter(first);
    while (!path.empty()) {
      Frame& frame = path.back();
      if (frame.next == frame.calls.size()) {
        mark[frame.rule] = Done;
        path.pop_back();
        continue;
      }
      const uint32_t called = frame.calls[frame.next++];
      if (mark[called] == Unseen) {
        enter(called);
      } else if (mark[called] == Open) {
        std::string chain;
        auto at = std::find_if(path.begin(), path.end(), [&](const Frame& f) { return f.rule == called; });
        for (int shown = 0; at != path.end() && shown < 8; ++at, ++shown) {
          chain += quote_text(rules.rules[at->rule].name) + " begins with ";
        }
        throw InvalidArgument(source_ + ": left recursion: " + chain + quote_text(rules.rules[called].name) +
                              "; expected rules that begin with something else, such as a repetition (x*)");
      }
    }
  }
}

GrammarMachine::GrammarMachine(const GrammarStates& states) : states_(states) {
  start_ = intern({{states.begin_of(states.root()), 0}});
}

uint32_t GrammarMachine::push(uint32_t state, uint32_t stack) {
  const uint64_t key = (uint64_t{state} << 32) | stack;
  const auto [at, added] = stack_numbers_.try_emplace(key, static_cast<uint32_t>(stacks_.size()));
  if (added) {
    if (stacks_.size() == max_stacks) throw InvalidArgument(states_.source() + ": the answer is nested too deeply");
    stacks_.push_back({state, stack});
  }
  return at->second;
}

bool GrammarMachine::is_new(uint64_t key) {
  if (visited_count_ * 2 > visited_.size()) grow_table();
  const size_t mask = visited_.size() - 1;
  for (size_t at = (key * 0x9E3779B97F4A7C15U) >> 32 & mask;; at = (at + 1) & mask) {
    Visited& entry = visited_[at];
    if (entry.round == round_ && entry.key == key) return false;
    if (entry.round == round_) continue;
    entry = {key, round_};
    ++visited_count_;
    return true;
  }
}

void GrammarMachine::grow_table() {
  std::vector<Visited> before(visited_.size() * 4);
  before.swap(visited_);
  visited_count_ = 0;
  for (const Visited& entry : before) {
    if (entry.round == round_) is_new(entry.key);
  }
}

GrammarMachine::Position GrammarMachine::intern(std::vector<Point> reached) {
  ++round_;
  visited_count_ = 0;
  std::vector<Point> points;
  bool may_end = false;
  const auto visit = [&](uint32_t state, uint32_t stack) {
    if (!is_new((uint64_t{state} << 32) | stack)) return;
    ++visits_;
    if (visited_count_ > max_points) {
      throw InvalidArgument(states_.source() + ": there are more than " + std::to_string(max_points) +
                            " ways to read the text; expected a grammar that is less ambiguous");
    }
    reached.push_back({state, stack});
  };
  std::vector<Point> given;
  given.swap(reached);
  for (const Point& point : given) visit(point.state, point.stack);
  while (!reached.empty()) {
    const Point point = reached.back();
    reached.pop_back();
    const GrammarStates::State& state = states_[point.state];
    if (!state.edges.empty()) points.push_back(point);
    for (const uint32_t to : state.empty) visit(to, point.stack);
    for (const GrammarStates::Call& call : state.calls) {
      visit(states_.begin_of(call.rule), states_[call.to].returns ? point.stack : push(call.to, point.stack));
    }
    if (!state.final) continue;
    if (point.stack == 0) {
      may_end = true;
    } else {
      visit(stacks_[point.stack].state, stacks_[point.stack].stack);
    }
  }
  if (points.empty() && !may_end) return dead;
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.state != b.state ? a.state < b.state : a.stack < b.stack; });
  return remember(std::move(points), may_end);
}

GrammarMachine::Position GrammarMachine::remember(std::vector<Point> points, bool may_end) {
  std::string key(1, may_end ? 'e' : '-');
  key.append(reinterpret_cast<const char*>(points.data()), points.size() * sizeof(Point));
  const auto [at, added] = numbers_.try_emplace(std::move(key), static_cast<Position>(positions_.size()));
  if (added) {
    Set& set = positions_.emplace_back();
    set.points = std::move(points);
    set.may_end = may_end;
    set.next.fill(unknown);
    set.next_character = unknown;
  }
  return at->second;
}

GrammarMachine::Position GrammarMachine::next(Position from, uint8_t byte) {
  if (positions_[from].next[byte] != unknown) return positions_[from].next[byte];
  std::vector<Point> reached;
  // The bytes around this one that the same edges take.
  uint8_t first = 0, last = 255;
  for (const Point& point : positions_[from].points) {
    for (const GrammarStates::Edge& edge : states_[point.state].edges) {
      if (edge.last < byte) {
        first = std::max(first, static_cast<uint8_t>(edge.last + 1));
      } else if (byte < edge.first) {
        last = std::min(last, static_cast<uint8_t>(edge.first - 1));
      } else {
        first = std::max(first, edge.first);
        last = std::min(last, edge.last);
        reached.push_back({edge.to, point.stack});
      }
    }
  }
  const Position to = reached.empty() ? dead : intern(std::move(reached));
  const auto begin = positions_[from].next.begin();
  std::fill(begin + first, begin + last + 1, to);
  return to;
}

GrammarMachine::Position GrammarMachine::next_character(Position from) {
  if (positions_[from].next_character != unknown) return positions_[from].next_character;
  // Returns where all bytes of a range lead; dead if they differ.
  const auto step = [&](Position at, uint8_t first, uint8_t last) {
    if (at == dead) return dead;
    const Position to = next(at, first);
    for (int byte = first + 1; byte <= last; ++byte) {
      if (next(at, static_cast<uint8_t>(byte)) != to) return dead;
    }
    return to;
  };
  const Position to = step(from, ' ', '!');
  const auto leads_on = [&](Position at) { return at == to; };
  const auto behind = [&](Position at) { return step(at, 0x80, 0xBF); };
  const bool all =
      to != dead && leads_on(step(from, '#', '[')) && leads_on(step(from, ']', '~')) &&
      leads_on(behind(step(from, 0xC2, 0xDF))) && leads_on(behind(step(step(from, 0xE0, 0xE0), 0xA0, 0xBF))) &&
      leads_on(behind(behind(step(from, 0xE1, 0xEC)))) && leads_on(behind(step(step(from, 0xED, 0xED), 0x80, 0x9F))) &&
      leads_on(behind(behind(step(from, 0xEE, 0xEF)))) &&
      leads_on(behind(behind(step(step(from, 0xF0, 0xF0), 0x90, 0xBF)))) &&
      leads_on(behind(behind(behind(step(from, 0xF1, 0xF3))))) &&
      leads_on(behind(behind(step(step(from, 0xF4, 0xF4), 0x80, 0x8F))));
  return positions_[from].next_character = all ? to : dead;
}

std::vector<GrammarMachine::Position> GrammarMachine::forget(const std::vector<Position>& kept) {
  std::vector<Set> before;
  before.swap(positions_);
  numbers_.clear();
  start_ = remember(before[start_].points, before[start_].may_end);
  std::vector<Position> now;
  for (const Position old : kept) now.push_back(remember(before[old].points, before[old].may_end));
  return now;
}

Grammar::Grammar(const GrammarRules& rules) : states_(std::make_unique<GrammarStates>(rules)) {}

Grammar::~Grammar() = default;

std::shared_ptr<const Grammar> Grammar::parse_gbnf(std::string_view text, std::string_view source) {
  return std::shared_ptr<const Grammar>(new Grammar(read_gbnf(text, source)));
}

std::shared_ptr<const Grammar> Grammar::parse_json_schema(std::string_view text, std::string_view source) {
  return std::shared_ptr<const Grammar>(new Grammar(read_json_schema(text, source)));
}

bool Grammar::accepts(std::string_view text) const {
  GrammarMachine machine(*states_);
  GrammarMachine::Position at = machine.start();
  for (const char c : text) {
    at = machine.next(at, static_cast<uint8_t>(c));
    if (at == GrammarMachine::dead) return false;
    if (machine.size() > 10'000) at = machine.forget({at})[0];
  }
  return machine.may_end(at);
}

}  // namespace anyaccel::llm
