// A grammar as a pushdown automaton over bytes: the rules' states, and the positions that a text leads to.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llm/grammar/grammar_rules.h"

namespace anyaccel::llm {

// The states of all rules. A state leads to others by a byte, by nothing, or by a text of another rule.
class GrammarStates {
 public:
  struct Edge {
    uint8_t first = 0, last = 0;
    uint32_t to = 0;
  };
  struct Call {
    uint32_t rule = 0;
    uint32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> empty;
    std::vector<Call> calls;
    bool final = false;    // the rule may end here
    bool returns = false;  // the rule ends here and cannot go on
  };

  // Throws InvalidArgument for rules that begin with themselves, rules that never end, and too many states.
  explicit GrammarStates(const GrammarRules& rules);

  const State& operator[](uint32_t state) const { return states_[state]; }
  uint32_t begin_of(uint32_t rule) const { return begins_[rule]; }
  uint32_t root() const { return root_; }
  const std::string& source() const { return source_; }

 private:
  uint32_t add_state();
  // Adds what leads from a state through the expression, and returns the state behind it.
  uint32_t add(const Expression& expression, uint32_t from);
  uint32_t add_characters(const std::vector<CharacterRange>& ranges, uint32_t from);
  uint32_t add_repeat(const Expression& expression, uint32_t from);
  // Adds a choice. Literal texts in it share the states of their common beginnings.
  uint32_t add_choice(const Expression& expression, uint32_t from);
  void mark_returns();
  // Both return which rules can do so: without a byte, or at all.
  std::vector<bool> rules_that_end(bool without_bytes) const;
  void refuse_endless(const GrammarRules& rules) const;
  void refuse_left_recursion(const GrammarRules& rules) const;
  std::vector<uint32_t> first_calls(uint32_t rule, const std::vector<bool>& nullable) const;

  std::string source_;
  std::vector<State> states_;
  std::vector<uint32_t> begins_;  // of each rule
  uint32_t root_ = 0;
};

// The ways to read a text so far: sets of states, each with the states to return to. Sets and the bytes between them are
// remembered, so that reading is mostly looking up. Belongs to one thread at a time.
class GrammarMachine {
 public:
  explicit GrammarMachine(const GrammarStates& states);

  // Positions are numbers that stay valid until forget() is called.
  using Position = uint32_t;
  static constexpr Position dead = ~Position{0};

  Position start() { return start_; }
  // Returns `dead` if no text of the language begins so. InvalidArgument for too many ways to read the text.
  Position next(Position from, uint8_t byte);
  // Returns the position behind any one character but quotes, backslashes and controls, if all of them lead to the same one
  // (as in most positions in a JSON string); else `dead`.
  Position next_character(Position from);
  // Returns whether the text so far belongs to the language.
  bool may_end(Position at) const { return positions_[at].may_end; }
  bool may_continue(Position at) const { return !positions_[at].points.empty(); }
  // Returns the number of remembered positions, each of more than 1 KiB.
  size_t size() const { return positions_.size(); }
  // Returns how many states, each with a stack, were visited since the machine was made: a measure of work.
  uint64_t visits() const { return visits_; }
  // Forgets all positions but the start; returns those that `kept` has become.
  std::vector<Position> forget(const std::vector<Position>& kept);

 private:
  // A state, and the stack of states to return to, which is an index into stacks_ (0: empty).
  struct Point {
    uint32_t state = 0;
    uint32_t stack = 0;
  };
  struct Set {
    std::vector<Point> points;  // those that a byte leads on from, sorted
    bool may_end = false;
    std::array<Position, 256> next{};
    Position next_character{};
  };

  uint32_t push(uint32_t state, uint32_t stack);
  Position intern(std::vector<Point> reached);
  Position remember(std::vector<Point> points, bool may_end);

  const GrammarStates& states_;
  std::vector<Point> stacks_ = std::vector<Point>(1);  // state to return to, and the stack below
  std::unordered_map<uint64_t, uint32_t> stack_numbers_;
  std::vector<Set> positions_;
  std::unordered_map<std::string, Position> numbers_;
  // A table with open addressing holds what intern() has visited; its entries of this round are valid.
  struct Visited {
    uint64_t key = 0;
    uint64_t round = 0;
  };
  bool is_new(uint64_t key);
  void grow_table();
  std::vector<Visited> visited_ = std::vector<Visited>(256);
  size_t visited_count_ = 0;  // of this round
  uint64_t round_ = 0;
  uint64_t visits_ = 0;
  Position start_ = 0;
};

}  // namespace anyaccel::llm
