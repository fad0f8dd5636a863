// Tries every interleaving of a few ranks that run the schedules of pipeline.h: no member may touch memory of a slot
// while another writes it, every read must find the expected value, and nobody may wait forever.
//
// The real schedule functions run once per rank on a port that records what they do. The recorded programs are then run
// step by step in all orders. A publication is one step, since it is one release store; filling a slot or reading it has a
// beginning and an end, so that two members can be seen inside the same memory.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "comm/shared_memory/pipeline.h"

namespace anyaccel::comm::shm {
namespace {

struct Step {
  enum Kind { Write, Read, Set, WaitEqual, WaitAtLeast } kind;
  int place;  // of memory (Write, Read) or of a flag
  int value;  // written, expected, set or waited for
};

// Gives every place of memory and every flag a number.
class Places {
 public:
  int of(const std::string& name) {
    return numbers_.try_emplace(name, static_cast<int>(numbers_.size())).first->second;
  }
  std::string name(int number) const {
    for (const auto& [text, value] : numbers_) {
      if (value == number) return text;
    }
    return "?";
  }
  size_t size() const { return numbers_.size(); }

 private:
  std::map<std::string, int> numbers_;
};

struct Program {
  int rank = 0;
  int ranks = 0;
  int slots = 2;
  Places* places = nullptr;
  std::vector<Step> steps;
  int number = 0;  // of the operation
  int step = 0;
  uint64_t chunks = 0;

  void add(Step::Kind kind, const std::string& place, int value) { steps.push_back({kind, places->of(place), value}); }
  std::string to(int from, int peer, const std::string& what) const {
    return what + " of " + std::to_string(from) + " to " + std::to_string(peer);
  }
  std::string opening(int from, int peer) const { return to(from, peer, "opening " + std::to_string(number % 2)); }

  // Group::open(): a payload, then the number, for each peer.
  void open() {
    ++number;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      add(Step::Write, opening(rank, peer) + " payload", number);
      add(Step::Set, opening(rank, peer), number);
    }
  }
  // Group::await_open(), and what is read of the payload.
  void await_open() {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      add(Step::WaitEqual, opening(peer, rank), number);
      add(Step::Read, opening(peer, rank) + " payload", number);
    }
  }
  void publish() {
    ++step;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank) add(Step::Set, to(rank, peer, "progress"), step);
    }
  }
  void await(int value) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank) add(Step::WaitAtLeast, to(peer, rank, "progress"), value);
    }
  }
};

// The steps of ChunkPort and of its users, on a Program. A slot has a part for each member; values in it say who
// wrote it last, for which chunk, and whether it is combined.
struct ModelPort {
  Program& program;
  uint64_t first;
  bool opened = false;

  ModelPort(Program& p, uint64_t count) : program(p), first(p.chunks) { p.chunks += count; }

  std::string part(int owner, uint64_t c, int member) const {
    return "slot " + std::to_string((first + c) % static_cast<uint64_t>(program.slots)) + " of " +
           std::to_string(owner) + ", part " + std::to_string(member);
  }
  int filled(int owner, uint64_t c) const { return static_cast<int>(first + c) * 100 + owner + 1; }
  int combined(int member, uint64_t c) const { return filled(member, c) + 50; }

  int publish() {
    if (opened) {
      program.publish();
      return program.step;
    }
    opened = true;
    program.open();
    return 0;
  }
  void await(int token) { token == 0 ? program.await_open() : program.await(token); }
  void fill(uint64_t c) {
    for (int member = 0; member < program.ranks; ++member) {
      if (member != program.rank) program.add(Step::Write, part(program.rank, c, member), filled(program.rank, c));
    }
  }
  void take(uint64_t c) {
    for (int owner = 0; owner < program.ranks; ++owner) {
      if (owner != program.rank) program.add(Step::Read, part(owner, c, program.rank), filled(owner, c));
    }
  }
  void start() {
    fill(0);
    await(publish());
  }
  void combine(uint64_t c) {
    take(c);
    for (int owner = 0; owner < program.ranks; ++owner) {
      if (owner == program.rank) continue;
      program.add(Step::Write, part(owner, c, program.rank), combined(program.rank, c));
    }
  }
  void drain(uint64_t c) {
    for (int member = 0; member < program.ranks; ++member) {
      if (member != program.rank) program.add(Step::Read, part(program.rank, c, member), combined(member, c));
    }
  }
};

// Runs programs in all orders; the first thing that goes wrong is `problem`.
class AllOrders {
 public:
  AllOrders(const std::vector<Program>& programs, const Places& places) : programs_(programs), places_(places) {
    State start;
    start.at.assign(programs.size(), 0);
    start.inside.assign(programs.size(), 0);
    start.values.assign(places.size(), 0);
    std::vector<State> open{start};
    seen_.insert(start.key());
    while (!open.empty() && problem_.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      bool moved = false;
      bool finished = true;
      for (size_t r = 0; r < programs.size(); ++r) {
        if (state.at[r] == static_cast<int>(programs[r].steps.size())) continue;
        finished = false;
        State next = state;
        if (!advance(next, r)) continue;
        moved = true;
        if (seen_.insert(next.key()).second) open.push_back(std::move(next));
      }
      if (!moved && !finished) problem_ = "everybody waits for ever";
    }
  }
  const std::string& problem() const { return problem_; }
  size_t states() const { return seen_.size(); }

 private:
  struct State {
    std::vector<int> at;      // the next step of each program
    std::vector<int> inside;  // whether it has begun
    std::vector<int> values;  // of memory and flags
    std::string key() const {
      std::string text;
      for (const auto* list : {&at, &inside, &values}) {
        for (const int value : *list) text.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
      return text;
    }
  };

  // Returns true if rank r can continue; next is the state afterwards.
  bool advance(State& state, size_t r) {
    const Step& step = programs_[r].steps[static_cast<size_t>(state.at[r])];
    int& value = state.values[static_cast<size_t>(step.place)];
    switch (step.kind) {
      case Step::Set: value = step.value; break;
      case Step::WaitEqual:
        if (value != step.value) return false;
        break;
      case Step::WaitAtLeast:
        if (value < step.value) return false;
        break;
      case Step::Read:
      case Step::Write:
        if (!state.inside[r]) {
          state.inside[r] = 1;
          check_alone(state, r, step);
          if (step.kind == Step::Read && value != step.value) fail(r, step, "found " + std::to_string(value));
          return true;
        }
        state.inside[r] = 0;
        if (step.kind == Step::Write) value = step.value;
        break;
    }
    ++state.at[r];
    return true;
  }
  void check_alone(const State& state, size_t r, const Step& step) {
    for (size_t other = 0; other < programs_.size(); ++other) {
      if (other == r || !state.inside[other]) continue;
      const Step& theirs = programs_[other].steps[static_cast<size_t>(state.at[other])];
      if (theirs.place == step.place && (theirs.kind == Step::Write || step.kind == Step::Write)) {
        fail(r, step, "while rank " + std::to_string(other) + " is in it");
      }
    }
  }
  void fail(size_t r, const Step& step, const std::string& what) {
    problem_ = "rank " + std::to_string(r) + (step.kind == Step::Read ? " reads " : " writes ") +
               places_.name(step.place) + " (" + std::to_string(step.value) + ") " + what;
  }

  const std::vector<Program>& programs_;
  const Places& places_;
  std::unordered_set<std::string> seen_;
  std::string problem_;
};

using Calls = std::function<void(Program&)>;

std::string problem_of(int ranks, int slots, const Calls& calls, size_t* states = nullptr) {
  Places places;
  std::vector<Program> programs(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Program& program = programs[static_cast<size_t>(r)];
    program.rank = r;
    program.ranks = ranks;
    program.slots = slots;
    program.places = &places;
    calls(program);
  }
  const AllOrders orders(programs, places);
  if (states) *states = orders.states();
  return orders.problem();
}

void one(Program& program, uint64_t chunks) {
  ModelPort port(program, chunks);
  one_phase(port, chunks);
}
void two(Program& program, uint64_t chunks) {
  ModelPort port(program, chunks);
  two_phase(port, chunks);
}
void meet(Program& program) {
  program.open();
  program.await_open();
}

TEST(Protocol, OnePhase) {
  size_t states = 0;
  EXPECT_EQ(problem_of(
                2, 2, [](Program& p) { one(p, 5); }, &states),
            "");
  EXPECT_GT(states, 100u);  // it did something
  EXPECT_EQ(problem_of(3, 2, [](Program& p) { one(p, 3); }), "");
}

TEST(Protocol, TwoPhase) {
  EXPECT_EQ(problem_of(2, 2, [](Program& p) { two(p, 5); }), "");
  EXPECT_EQ(problem_of(3, 2, [](Program& p) { two(p, 2); }), "");
}

TEST(Protocol, OperationsInEveryOrder) {
  for (int first = 0; first < 4; ++first) {
    for (int second = 0; second < 4; ++second) {
      for (int third = 0; third < 4; ++third) {
        const std::string problem = problem_of(2, 2, [&](Program& p) {
          for (const int kind : {first, second, third, first, second}) {
            if (kind == 0) meet(p);
            if (kind == 1) one(p, 1);
            if (kind == 2) two(p, 1);
            if (kind == 3) two(p, 2);
          }
        });
        EXPECT_EQ(problem, "") << first << second << third;
      }
    }
  }
}

TEST(Protocol, ThreeRanksOneOperationAfterAnother) {
  EXPECT_EQ(problem_of(3, 2,
                       [](Program& p) {
                         one(p, 1);
                         two(p, 1);
                         meet(p);
                       }),
            "");
}

// The test finds what is wrong.

TEST(Protocol, OneSlotIsTooFew) {
  EXPECT_NE(problem_of(2, 1, [](Program& p) { one(p, 3); }), "");
  EXPECT_NE(problem_of(2, 1, [](Program& p) { two(p, 3); }), "");
}

TEST(Protocol, WaitingMatters) {
  struct Hasty : ModelPort {
    using ModelPort::ModelPort;
    void await(int token) {
      if (token == 0) ModelPort::await(token);  // steps are not waited for
    }
  };
  EXPECT_NE(problem_of(2, 2,
                       [](Program& p) {
                         Hasty port(p, 2);
                         two_phase(port, uint64_t{2});
                       }),
            "");
}

TEST(Protocol, WaitingForWhatNobodyPublishesIsFound) {
  EXPECT_EQ(problem_of(2, 2, [](Program& p) { p.await(1); }), "everybody waits for ever");
}

}  // namespace
}  // namespace anyaccel::comm::shm
