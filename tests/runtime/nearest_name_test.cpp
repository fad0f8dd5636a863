// Suggestions for mistyped names, and names for which no suggestion is near enough.
#include "base/text/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace anyaccel {
namespace {

const std::vector<std::string> known{"--model", "--prompt", "--prompt-file", "--max-new-tokens", "--top-k", "-q"};

TEST(NearestName, OneMistakeOfAnyKind) {
  EXPECT_EQ(nearest_name("--modle", known), "--model") << "two letters swapped";
  EXPECT_EQ(nearest_name("--modl", known), "--model") << "one left out";
  EXPECT_EQ(nearest_name("--modell", known), "--model") << "one too many";
  EXPECT_EQ(nearest_name("--nodel", known), "--model") << "one replaced";
}

TEST(NearestName, DashesUnderscoresAndCapitalsDoNotCount) {
  EXPECT_EQ(nearest_name("-model", known), "--model");
  EXPECT_EQ(nearest_name("model", known), "--model");
  EXPECT_EQ(nearest_name("--max_new_tokens", known), "--max-new-tokens");
  EXPECT_EQ(nearest_name("--MODEL", known), "--model");
}

TEST(NearestName, TheBeginningOfANameIsEnough) {
  EXPECT_EQ(nearest_name("--max-new", known), "--max-new-tokens");
  EXPECT_EQ(nearest_name("--prompt-f", known), "--prompt-file");
}

TEST(NearestName, WhatIsFarFromEverythingHasNone) {
  EXPECT_EQ(nearest_name("--nonsense", known), "");
  EXPECT_EQ(nearest_name("-z", known), "") << "among short words anything is near";
  EXPECT_EQ(nearest_name("", known), "");
  EXPECT_EQ(nearest_name("--", known), "");
  EXPECT_EQ(nearest_name("--model", {}), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'x'), known), "") << "a long word costs no time";
}

TEST(NearestName, AsTheEndOfAMessage) {
  EXPECT_EQ(did_you_mean("--modle", known), "; did you mean '--model'?");
  EXPECT_EQ(did_you_mean("--nonsense", known), "");
}

}  // namespace
}  // namespace anyaccel
