// Launches of the graphs of streams/captures.h when something fails: what the host may repeat, and what a launch waits for.
#include "accelerators/streams/captures.h"

#include <gtest/gtest.h>

#include <new>
#include <optional>
#include <vector>

namespace anyaccel::streams {
namespace {

using Code = std::optional<aa_code>;

void fail_if(const Code& code) {
  if (code) throw abi::Failure(*code, "on request", 17);
}

struct FakeEvent final : abi::Event {
  void record(abi::Stream&) override {
    fail_if(record_fails);
    ++records;
  }
  bool query() override { return ended(); }
  void synchronize() override {}
  bool ended() const {
    const bool answer = has_ended;
    has_ended = has_ended || ends_later;
    return answer;
  }

  Code record_fails;
  int records = 0;
  mutable bool has_ended = true;
  bool ends_later = false;  // between two questions
};

struct FakeStream final : abi::Stream {
  using Capture = streams::Capture<int>;

  void copy(const aa_copy&) override {}
  void fill(const aa_fill&) override {}
  bool query() override { return true; }
  void synchronize() override {}
  void wait_event(abi::Event&) override {
    fail_if(wait_fails);
    ++waits;
  }
  void submit(int node) {
    if (node == fails_at) fail_if(code);
    if (node == lacks_memory_at) throw std::bad_alloc();
    taken.push_back(node);
  }
  const std::shared_ptr<Capture>& capture() const { return open; }

  std::vector<int> taken;
  int waits = 0;
  int fails_at = -1, lacks_memory_at = -1;
  Code code, wait_fails;
  std::shared_ptr<Capture> open;
};

class NodeGraphs : public ::testing::Test {
 protected:
  // The code of the launch's failure; AA_OK: there is none.
  int32_t launch() {
    try {
      graph_.launch(stream_);
    } catch (const abi::Failure& failure) {
      text_ = failure.what();
      return failure.code();
    }
    return AA_OK;
  }

  std::unique_ptr<FakeEvent> owned_ = std::make_unique<FakeEvent>();
  FakeEvent& last_ = *owned_;
  NodeGraph<int, FakeStream, FakeEvent> graph_{{1, 2, 3}, std::move(owned_)};
  FakeStream stream_;
  std::string text_;
};

TEST_F(NodeGraphs, WhatFailsBeforeAnItemWasTakenMayBeRepeated) {
  stream_.fails_at = 1;
  stream_.code = AA_RESOURCE_EXHAUSTED;
  EXPECT_EQ(launch(), AA_RESOURCE_EXHAUSTED);
  stream_.fails_at = -1;
  stream_.lacks_memory_at = 1;
  EXPECT_THROW(graph_.launch(stream_), std::bad_alloc);
  EXPECT_TRUE(stream_.taken.empty());
}

TEST_F(NodeGraphs, WhatFailsBehindAnItemIsNotRepeated) {
  stream_.fails_at = 3;
  stream_.code = AA_RESOURCE_EXHAUSTED;
  EXPECT_EQ(launch(), AA_INTERNAL);
  EXPECT_NE(text_.find("taken 2 of its 3 items, which run: on request"), std::string::npos) << text_;
  stream_.fails_at = -1;
  stream_.lacks_memory_at = 2;
  EXPECT_EQ(launch(), AA_INTERNAL);
  EXPECT_NE(text_.find("taken 1 of its 3 items, which run: out of host memory"), std::string::npos) << text_;
  stream_.open = std::make_shared<FakeStream::Capture>(&stream_);  // the items of another graph
  EXPECT_EQ(launch(), AA_INTERNAL);
}

TEST_F(NodeGraphs, ALaunchWithoutItsRecordIsNotRepeated) {
  last_.record_fails = AA_RESOURCE_EXHAUSTED;
  EXPECT_EQ(launch(), AA_INTERNAL);
  EXPECT_EQ(stream_.taken, (std::vector<int>{1, 2, 3}));
  last_.record_fails = AA_DEVICE_LOST;
  EXPECT_EQ(launch(), AA_DEVICE_LOST);
}

TEST_F(NodeGraphs, OnlyALaunchThatRunsIsWaitedFor) {
  EXPECT_EQ(launch(), AA_OK);
  EXPECT_EQ(stream_.waits, 0);
  last_.has_ended = false;
  EXPECT_EQ(launch(), AA_OK);
  EXPECT_EQ(stream_.waits, 1);
  EXPECT_EQ(last_.records, 2);
  stream_.wait_fails = AA_INTERNAL;
  EXPECT_EQ(launch(), AA_INTERNAL) << "two launches would run at the same time";
  EXPECT_EQ(stream_.taken.size(), 6);
  last_.ends_later = true;  // it fails while the launch begins
  EXPECT_EQ(launch(), AA_OK);
  EXPECT_EQ(stream_.taken.size(), 9);
}

}  // namespace
}  // namespace anyaccel::streams
