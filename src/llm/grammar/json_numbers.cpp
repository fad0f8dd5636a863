// Builds expressions for JSON numbers within bounds, digit by digit. Numbers have at most 16 digits before the point and
// 15 behind it, and exponents of at most two digits, so that every one of them is a finite double.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "anyaccel/error.h"
#include "llm/grammar/json_text_rules.h"

namespace anyaccel::llm {

namespace {

constexpr int64_t largest = 9'999'999'999'999'999;

Expression digits(char first, char last) {
  return Expression::characters({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

Expression any_digits(int64_t least, int64_t most) { return Expression::repeat(digits('0', '9'), least, most); }

// Returns numbers of as many digits as `low`, of at least `low`.
Expression at_least(std::string_view low) {
  if (low.find_first_not_of('0') == std::string_view::npos) {
    return any_digits(static_cast<int64_t>(low.size()), static_cast<int64_t>(low.size()));
  }
  const auto rest = static_cast<int64_t>(low.size() - 1);
  std::vector<Expression> ways;
  ways.push_back(Expression::sequence({Expression::text(low.substr(0, 1)), at_least(low.substr(1))}));
  if (low[0] < '9') {
    ways.push_back(Expression::sequence({digits(static_cast<char>(low[0] + 1), '9'), any_digits(rest, rest)}));
  }
  return Expression::choice(std::move(ways));
}

Expression at_most(std::string_view high) {
  if (high.find_first_not_of('9') == std::string_view::npos) {
    return any_digits(static_cast<int64_t>(high.size()), static_cast<int64_t>(high.size()));
  }
  const auto rest = static_cast<int64_t>(high.size() - 1);
  std::vector<Expression> ways;
  ways.push_back(Expression::sequence({Expression::text(high.substr(0, 1)), at_most(high.substr(1))}));
  if (high[0] > '0') {
    ways.push_back(Expression::sequence({digits('0', static_cast<char>(high[0] - 1)), any_digits(rest, rest)}));
  }
  return Expression::choice(std::move(ways));
}

// Returns the digits from `low` to `high`, which have equal lengths; low <= high.
Expression between(std::string_view low, std::string_view high) {
  size_t same = 0;
  while (same < low.size() && low[same] == high[same]) ++same;
  const Expression head = Expression::text(low.substr(0, same));
  if (same == low.size()) return head;
  const auto rest = static_cast<int64_t>(low.size() - same - 1);
  std::vector<Expression> ways;
  ways.push_back(Expression::sequence({Expression::text(low.substr(same, 1)), at_least(low.substr(same + 1))}));
  if (high[same] - low[same] > 1) {
    ways.push_back(Expression::sequence(
        {digits(static_cast<char>(low[same] + 1), static_cast<char>(high[same] - 1)), any_digits(rest, rest)}));
  }
  ways.push_back(Expression::sequence({Expression::text(high.substr(same, 1)), at_most(high.substr(same + 1))}));
  return Expression::sequence({head, Expression::choice(std::move(ways))});
}

// Adds the whole numbers from `low` to `high`, 0 <= low <= high, without leading zeros.
void add_whole(int64_t low, int64_t high, std::vector<Expression>& ways) {
  while (low <= high) {
    int64_t end = 9;  // the largest number with as many digits as `low`
    while (end < low) end = end * 10 + 9;
    ways.push_back(between(std::to_string(low), std::to_string(std::min(end, high))));
    low = end + 1;
  }
}

[[noreturn]] void fail_empty() { throw InvalidArgument("no number is within the bounds"); }

// A bound of at least 0 in decimal digits; those behind the point without zeros at the end.
struct Decimal {
  int64_t whole = 0;
  std::string fraction;
  bool exclusive = false;
};

Decimal decimal(double value, bool exclusive) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed);
  const std::string_view all(text, static_cast<size_t>(end - text));
  const size_t point = all.find('.');
  Decimal made;
  made.exclusive = exclusive;
  if (error == std::errc() && point != std::string_view::npos) made.fraction = all.substr(point + 1);
  if (error != std::errc() || value > static_cast<double>(largest) || made.fraction.size() > 15) {
    throw InvalidArgument("a bound of a number has more than 15 digits");
  }
  std::from_chars(text, end, made.whole);
  const size_t before = made.whole == 0 ? 0 : std::to_string(made.whole).size();
  if (exclusive && before + made.fraction.size() > 15) {
    throw InvalidArgument(
        "an exclusive bound of a number has more than 15 digits, so that its neighbours would be read as the bound");
  }
  return made;
}

// Returns `digits` + 1 in the last place; nothing if there is no such number of this length.
std::optional<std::string> successor(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  return std::nullopt;
}

constexpr int64_t kFractionDigits = 15;
// The digits behind the point that may follow a whole part next to an exclusive bound: numbers of 15 digits in all are different doubles, so that
// none is read as the bound.
int64_t exact_digits(int64_t whole) {
  const auto before = static_cast<int64_t>(whole == 0 ? 0 : std::to_string(whole).size());
  return std::max<int64_t>(0, kFractionDigits - before);
}

// Returns what may follow the whole part of a number that has that of the lower bound, of the upper one or of both, with at most `most`
// digits behind the point, or as many as a bound has. Nothing: there is no such number.
std::optional<Expression> fraction(const Decimal* low, const Decimal* high, int64_t most = kFractionDigits) {
  const Expression point = Expression::text(".");
  std::vector<Expression> ways;
  const bool low_allows_none = low == nullptr || (low->fraction.empty() && !low->exclusive);
  const bool high_allows_none = high == nullptr || !high->fraction.empty() || !high->exclusive;
  if (low_allows_none && high_allows_none) ways.push_back(Expression::text(""));
  if (high != nullptr && high->fraction.empty()) {
    if (low_allows_none && high_allows_none)
      ways.push_back(Expression::sequence({point, Expression::repeat(Expression::text("0"), 1, 1)}));
  } else if (low != nullptr && low->fraction.empty() && low->exclusive && high == nullptr) {
    if (most == 0) return std::nullopt;
    const int64_t zeros = std::min<int64_t>(9, most - 1);
    ways.push_back(Expression::sequence({point, Expression::repeat(Expression::text("0"), 0, zeros), digits('1', '9'),
                                         any_digits(0, std::min<int64_t>(5, most - 1 - zeros))}));
  } else {
    // Fractions of 1 to `size` digits; the longest may go on.
    if (most == 0 && low == nullptr && high == nullptr) return Expression::text("");
    const size_t size = std::max({low ? low->fraction.size() : 0, high ? high->fraction.size() : 0, size_t{1}});
    for (size_t length = 1; length <= size; ++length) {
      std::string first(length, '0'), last(length, '9');
      if (low != nullptr) {
        first = low->fraction.substr(0, length);
        first.resize(length, '0');
        const bool cut = low->fraction.size() > length;
        if (cut || low->exclusive) {
          first = successor(first).value_or("");  // empty: there is none
        }
      }
      bool last_is_bound = false;
      if (high != nullptr) {
        last = high->fraction.substr(0, length);
        last.resize(length, '0');
        last_is_bound = high->fraction.size() <= length;
      }
      if (last_is_bound) {
        if (!high->exclusive && first <= last) ways.push_back(Expression::sequence({point, Expression::text(last)}));
        // What is below it may go on.
        std::string below = last;
        size_t i = below.size();
        while (i-- > 0 && below[i] == '0') below[i] = '9';
        if (i == std::string::npos) continue;
        --below[i];
        last = below;
      }
      if (low != nullptr && low->exclusive && length == size) {
        // The bound itself with more digits, of which one is not 0.
        std::string bound = low->fraction;
        bound.resize(length, '0');
        const int64_t more = most - static_cast<int64_t>(length) - 1;
        if (bound <= last && more >= 0) {
          const int64_t zeros = std::min<int64_t>(6, more);
          ways.push_back(
              Expression::sequence({point, Expression::text(bound), Expression::repeat(Expression::text("0"), 0, zeros),
                                    digits('1', '9'), any_digits(0, std::min<int64_t>(3, more - zeros))}));
        }
      }
      if (low != nullptr && first.empty()) continue;
      if (first > last) continue;
      const int64_t more = std::clamp<int64_t>(most - static_cast<int64_t>(length), 0, 10);
      ways.push_back(Expression::sequence({point, between(first, last), any_digits(0, length == size ? more : 0)}));
    }
  }
  if (ways.empty()) return std::nullopt;
  return Expression::choice(std::move(ways));
}

// Adds the numbers between two bounds of at least 0.
void add_numbers(const Decimal& low, const Decimal& high, const std::string& sign, std::vector<Expression>& ways) {
  const auto add = [&](std::vector<Expression> wholes, std::optional<Expression> rest) {
    if (wholes.empty() || !rest) return;
    ways.push_back(
        Expression::sequence({Expression::text(sign), Expression::choice(std::move(wholes)), std::move(*rest)}));
  };
  if (low.whole > high.whole) return;
  if (low.whole == high.whole) {
    add({Expression::text(std::to_string(low.whole))}, fraction(&low, &high, exact_digits(low.whole)));
    return;
  }
  add({Expression::text(std::to_string(low.whole))}, fraction(&low, nullptr, exact_digits(low.whole)));
  add({Expression::text(std::to_string(high.whole))}, fraction(nullptr, &high, exact_digits(high.whole)));
  int64_t last = high.whole - 1;
  if (last > low.whole && high.exclusive && high.fraction.empty()) {
    add({Expression::text(std::to_string(last))}, fraction(nullptr, nullptr, exact_digits(last)));
    --last;
  }
  std::vector<Expression> wholes;
  add_whole(low.whole + 1, last, wholes);
  add(std::move(wholes), fraction(nullptr, nullptr));
}

}  // namespace

Expression json_integer(const NumberBounds& bounds) {
  const auto limit = static_cast<double>(largest);
  int64_t low = -largest, high = largest;
  if (bounds.low && bounds.low->value > -limit) {
    const double value = std::ceil(bounds.low->value);
    if (value > limit) fail_empty();
    low = static_cast<int64_t>(value) + (bounds.low->exclusive && value == bounds.low->value ? 1 : 0);
  }
  if (bounds.high && bounds.high->value < limit) {
    const double value = std::floor(bounds.high->value);
    if (value < -limit) fail_empty();
    high = static_cast<int64_t>(value) - (bounds.high->exclusive && value == bounds.high->value ? 1 : 0);
  }
  if (low > high) fail_empty();
  std::vector<Expression> ways;
  if (low < 0) {
    std::vector<Expression> negative;
    add_whole(std::max<int64_t>(1, -high), -low, negative);
    if (!negative.empty()) {
      ways.push_back(Expression::sequence({Expression::text("-"), Expression::choice(std::move(negative))}));
    }
  }
  add_whole(std::max<int64_t>(low, 0), high, ways);
  return Expression::choice(std::move(ways));
}

Expression json_number(const NumberBounds& bounds) {
  if (!bounds.low && !bounds.high) {
    const Expression whole =
        Expression::choice({Expression::text("0"), Expression::sequence({digits('1', '9'), any_digits(0, 15)})});
    const Expression exponent = Expression::sequence(
        {Expression::characters({{'e', 'e'}, {'E', 'E'}}),
         Expression::repeat(Expression::characters({{'+', '+'}, {'-', '-'}}), 0, 1), any_digits(1, 2)});
    return Expression::sequence(
        {Expression::repeat(Expression::text("-"), 0, 1), whole,
         Expression::repeat(Expression::sequence({Expression::text("."), any_digits(1, 15)}), 0, 1),
         Expression::repeat(exponent, 0, 1)});
  }
  using Bound = NumberBounds::Bound;
  const Bound low = bounds.low.value_or(Bound{-static_cast<double>(largest), false});
  const Bound high = bounds.high.value_or(Bound{static_cast<double>(largest), false});
  std::vector<Expression> ways;
  if (low.value < 0) {
    const Decimal nearest = high.value < 0 ? decimal(-high.value, high.exclusive) : Decimal{0, "", true};
    add_numbers(nearest, decimal(-low.value, low.exclusive), "-", ways);
  }
  if (high.value >= 0) {
    const Decimal nearest = low.value >= 0 ? decimal(low.value, low.exclusive) : Decimal{0, "", false};
    add_numbers(nearest, decimal(high.value, high.exclusive), "", ways);
  }
  if (ways.empty()) fail_empty();
  return Expression::choice(std::move(ways));
}

}  // namespace anyaccel::llm
