// Tests of the random number generator's state.
#include "anyaccel/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace anyaccel {
namespace {

TEST(Generator, StartsFromTheDefaultSeed) {
  const Generator g;
  EXPECT_EQ(g.initial_seed(), Generator::default_seed);
  EXPECT_EQ(g.get_state(), (RngState{Generator::default_seed, 0}));
}

TEST(Generator, SeedingSetsTheOffsetBack) {
  Generator g;
  g.reserve(5);
  g.manual_seed(42);
  EXPECT_EQ(g.get_state(), (RngState{42, 0}));
  EXPECT_EQ(g.initial_seed(), 42u);
}

TEST(Generator, ReservingMovesTheOffset) {
  Generator g;
  g.manual_seed(1);
  EXPECT_EQ(g.reserve(3), (RngState{1, 0}));
  EXPECT_EQ(g.reserve(4), (RngState{1, 3}));
  EXPECT_EQ(g.get_state(), (RngState{1, 7}));
}

TEST(Generator, AStateThatWasSavedComesBack) {
  Generator g;
  g.reserve(10);
  const RngState saved = g.get_state();
  const RngState first = g.reserve(2);
  g.set_state(saved);
  EXPECT_EQ(g.reserve(2), first);
}

TEST(Generator, ThreadsGetDifferentCounters) {
  Generator g;
  g.manual_seed(0);
  std::vector<std::vector<uint64_t>> offsets(4);
  std::vector<std::thread> threads;
  for (auto& mine : offsets) {
    threads.emplace_back([&g, &mine] {
      for (int i = 0; i < 1000; ++i) mine.push_back(g.reserve(2).offset);
    });
  }
  for (auto& t : threads) t.join();
  std::vector<uint64_t> all;
  for (const auto& mine : offsets) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 2 * i);
}

}  // namespace
}  // namespace anyaccel
