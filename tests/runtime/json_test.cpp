// src/base/text/json.h: what is written is what the JSON library writes for the same values.
#include "base/text/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "anyaccel/error.h"

namespace anyaccel {
namespace {

using Library = nlohmann::ordered_json;

TEST(JsonText, NumbersAreTheLibrarys) {
  const double real[] = {0.0,
                         -0.0,
                         1.0,
                         0.1,
                         1.0 / 3,
                         1e-5,
                         1e100,
                         123456789012345680.0,
                         5e-324,
                         1.7976931348623157e308,
                         0x1p53,
                         12345.5,
                         1e-06,
                         1e15,
                         1e16,
                         1e17,
                         std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN()};
  for (const double value : real) EXPECT_EQ(json_text(value), Library(value).dump()) << value;
  EXPECT_EQ(json_text(0.1f), Library(0.1f).dump());
  for (const int64_t value : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(json_text(value), Library(value).dump());
  }
  for (const uint64_t value : {uint64_t{0}, uint64_t{INT64_MAX}, uint64_t{INT64_MAX} + 1, UINT64_MAX}) {
    EXPECT_EQ(json_text(value), Library(value).dump());
  }
  EXPECT_EQ(json_text(true), "true");
  EXPECT_EQ(json_text(false), "false");
  EXPECT_EQ(json_text(JsonValue()), "null");
}

TEST(JsonText, TextsAreTheLibrarys) {
  std::string controls;
  for (int c = 0; c < 0x80; ++c) controls += static_cast<char>(c);
  for (const std::string& text : {std::string(), controls, std::string("\"\\/\b\f\n\r\t"), std::string("äöü€😀\x7f")}) {
    EXPECT_EQ(json_text(text), Library(text).dump());
    EXPECT_EQ(json_text({{text, text}}), Library({{text, text}}).dump());
  }
}

TEST(JsonText, BytesThatAreNotUtf8AreRefusedOrReplaced) {
  for (const std::string text :
       {"\xff", "a\xc3", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82(", "\xc3(\xe2\x82"}) {
    EXPECT_THROW(json_text(text), InvalidArgument);
    EXPECT_THROW(json_text({{text, 1}}), InvalidArgument);
    EXPECT_EQ(json_text({{text, JsonArray{text}}}, 2, BadUtf8::Replace),
              Library({{text, Library::array({text})}}).dump(2, ' ', false, Library::error_handler_t::replace));
  }
}

TEST(JsonText, ListsAndObjectsAreTheLibrarys) {
  const std::vector<int> sizes = {1, 2, 3};
  JsonValue ours = {{"z", "first"},
                    {"empty list", JsonArray()},
                    {"empty object", JsonMembers()},
                    {"sizes", sizes},
                    {"names", std::vector<std::string>{"x", "y"}},
                    {"nested", {{"a", 1.5}, {"b", {{"c", JsonValue()}}}}}};
  Library theirs = {{"z", "first"},
                    {"empty list", Library::array()},
                    {"empty object", Library::object()},
                    {"sizes", sizes},
                    {"names", {"x", "y"}},
                    {"nested", {{"a", 1.5}, {"b", {{"c", nullptr}}}}}};
  ours["grown"].push_back({{"name", "one"}});
  ours["grown"].push_back(JsonArray{1, JsonArray{true}});
  ours["totals"]["passed"] = 3;
  ours["totals"]["failed"] = uint64_t{0};
  ours["totals"]["passed"] = 4;
  theirs["grown"].push_back({{"name", "one"}});
  theirs["grown"].push_back(Library::array({1, Library::array({true})}));
  theirs["totals"]["passed"] = 4;
  theirs["totals"]["failed"] = 0;
  for (const int indent : {-1, 0, 2, 4}) EXPECT_EQ(json_text(ours, indent), theirs.dump(indent)) << indent;
}

TEST(JsonValue, FindsMembersAndElements) {
  const JsonValue value = {{"list", JsonArray{"a", 2}}, {"text", "b"}};
  ASSERT_NE(value.find("list"), nullptr);
  EXPECT_EQ(value.find("list")->elements().size(), 2u);
  EXPECT_EQ(value.find("text")->elements().size(), 0u);
  EXPECT_EQ(value.find("missing"), nullptr);
  EXPECT_EQ(value.find("text")->find("x"), nullptr);
}

TEST(JsonDocument, ReadsWhatIsWritten) {
  const JsonValue value = {{"text", "a\"\n\x01ä"}, {"numbers", JsonArray{-1, 0.1, UINT64_MAX}}, {"none", JsonValue()}};
  const JsonDocument document = JsonDocument::parse(json_text(value), "here");
  EXPECT_EQ(document.root().at("text").string(), "a\"\n\x01ä");
  EXPECT_EQ(document.root().at("numbers")[0].integer(-5, 5), -1);
  EXPECT_EQ(document.root().at("numbers")[1].number(0, 1), 0.1);
  EXPECT_TRUE(document.root().at("none").is_null());
}

}  // namespace
}  // namespace anyaccel
