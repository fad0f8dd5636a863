// What a mistyped name most likely meant, and when nothing is near enough to be said.
#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace anyaccel {
namespace {

const std::vector<std::string> options{"--model", "--prompt", "--prompt-file", "--max-new-tokens", "--top-k", "-q"};

TEST(NearestName, OneMistakeOfAnyKind) {
  EXPECT_EQ(nearest_name("--modle", options), "--model") << "two letters swapped";
  EXPECT_EQ(nearest_name("--modl", options), "--model") << "one left out";
  EXPECT_EQ(nearest_name("--modell", options), "--model") << "one too many";
  EXPECT_EQ(nearest_name("--nodel", options), "--model") << "one replaced";
}

TEST(NearestName, DashesUnderscoresAndCapitalsDoNotCount) {
  EXPECT_EQ(nearest_name("-model", options), "--model");
  EXPECT_EQ(nearest_name("model", options), "--model");
  EXPECT_EQ(nearest_name("--max_new_tokens", options), "--max-new-tokens");
  EXPECT_EQ(nearest_name("--MODEL", options), "--model");
}

TEST(NearestName, TheBeginningOfANameIsEnough) {
  EXPECT_EQ(nearest_name("--max-new", options), "--max-new-tokens");
  EXPECT_EQ(nearest_name("--prompt-f", options), "--prompt-file");
}

TEST(NearestName, WhatIsFarFromEverythingHasNone) {
  EXPECT_EQ(nearest_name("--nonsense", options), "");
  EXPECT_EQ(nearest_name("-z", options), "") << "among short words anything is near";
  EXPECT_EQ(nearest_name("", options), "");
  EXPECT_EQ(nearest_name("--", options), "");
  EXPECT_EQ(nearest_name("--model", {}), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'x'), options), "") << "a long word costs no time";
}

TEST(NearestName, AsTheEndOfAMessage) {
  EXPECT_EQ(did_you_mean("--modle", options), "; did you mean '--model'?");
  EXPECT_EQ(did_you_mean("--nonsense", options), "");
}

}  // namespace
}  // namespace anyaccel
