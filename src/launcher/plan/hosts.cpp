// Parses hostfiles, and the options that select among their hosts and devices.
#include "launcher/plan/hosts.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>

#include "anyaccel/error.h"

namespace anyaccel::launcher {
namespace {

constexpr int max_slots = 65535;
constexpr size_t max_hosts = 65535;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::vector<std::string_view> split_blanks(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < line.size();) {
    if (is_blank(line[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < line.size() && !is_blank(line[end])) ++end;
    words.push_back(line.substr(i, end - i));
    i = end;
  }
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Digits only.
std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

// Returns the slots of each host that a filter names, in the order of `hosts`.
std::vector<std::set<int>> named_slots(const std::vector<Host>& hosts, std::string_view filter, const char* option) {
  std::vector<std::set<int>> named(hosts.size());
  for (const std::string_view part : split_at(filter, '@')) {
    // A name may have colons itself (an IPv6 address): the longest host that the part begins with is meant.
    size_t colon = std::string_view::npos;
    auto found = hosts.end();
    do {
      const std::string_view called = part.substr(0, colon);
      found = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == called; });
    } while (found == hosts.end() && colon != 0 && (colon = part.rfind(':', colon - 1)) != std::string_view::npos);
    const std::string_view name = part.substr(0, found == hosts.end() ? part.find(':') : colon);
    if (name.empty()) {
      throw InvalidArgument(std::string(option) + " " + in_quotes(filter) + ": " + in_quotes(part) +
                            " names no host; expected NODE[:SLOT[,SLOT...]][@NODE...]");
    }
    if (found == hosts.end()) {
      throw InvalidArgument(std::string(option) + ": Hostname '" + std::string(name) + "' not found in hostfile");
    }
    std::set<int>& slots = named[static_cast<size_t>(found - hosts.begin())];
    if (colon == std::string_view::npos) {
      slots.insert(found->slots.begin(), found->slots.end());
      continue;
    }
    for (const std::string_view text : split_at(part.substr(colon + 1), ',')) {
      const std::optional<int> slot = parse_count(text);
      if (!slot) {
        throw InvalidArgument(std::string(option) + " " + in_quotes(filter) + ": " + in_quotes(text) + " in " +
                              in_quotes(part) + " is not a slot's number");
      }
      if (!std::count(found->slots.begin(), found->slots.end(), *slot)) {
        throw InvalidArgument(std::string(option) + ": No slot '" + std::string(text) + "' specified on host '" +
                              found->name + "', which has " + std::to_string(found->slots.size()));
      }
      slots.insert(*slot);
    }
  }
  return named;
}

// Expands one part of a Slurm list: text that may contain bracketed lists of numbers.
void expand_part(std::string_view part, const std::string& before, std::string_view whole,
                 std::vector<std::string>& names) {
  const size_t open = part.find('[');
  if (open == std::string_view::npos) {
    names.push_back(before + std::string(part));
    if (names.size() > max_hosts) throw InvalidArgument("the host list " + in_quotes(whole) + " is too long");
    return;
  }
  const size_t close = part.find(']', open);
  if (close == std::string_view::npos) throw InvalidArgument("the host list " + in_quotes(whole) + " lacks a ]");
  const std::string stem = before + std::string(part.substr(0, open));
  for (const std::string_view range : split_at(part.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::optional<int> first = parse_count(low);
    const std::optional<int> last = dash == std::string_view::npos ? first : parse_count(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first > static_cast<int>(max_hosts)) {
      throw InvalidArgument("the host list " + in_quotes(whole) + ": " + in_quotes(range) +
                            " is not a range of numbers");
    }
    for (int number = *first; number <= *last; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      expand_part(part.substr(close + 1), stem + digits, whole, names);
    }
  }
}

}  // namespace

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<Host> hosts;
  int number = 0;
  for (std::string_view line : split_at(text, '\n')) {
    ++number;
    std::vector<std::string_view> words = split_blanks(line);
    const auto comment =
        std::find_if(words.begin(), words.end(), [](std::string_view word) { return word.front() == '#'; });
    words.erase(comment, words.end());
    if (words.empty()) continue;
    const auto refuse = [&](const std::string& why) {
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      throw InvalidArgument("the hostfile " + in_quotes(file) + ", line " + std::to_string(number) + ", " +
                            in_quotes(line) + ": " + why);
    };
    constexpr std::string_view key = "slots=";
    if (words.size() < 2 || words[1].substr(0, key.size()) != key) refuse("expected \"host slots=N\"");
    const std::optional<int> slots = parse_count(words[1].substr(key.size()));
    if (!slots) refuse(in_quotes(words[1]) + " is not slots= and a number");
    if (*slots < 1 || *slots > max_slots) {
      refuse("a host has 1 to " + std::to_string(max_slots) + " slots; leave out a host that is not to be used");
    }
    if (words.size() > 2) refuse(in_quotes(words[2]) + " follows; expected \"host slots=N\" and nothing more");
    const size_t name_at = words[0].find('@') + 1;
    Host host{std::string(words[0].substr(name_at)), std::vector<int>(static_cast<size_t>(*slots)),
              std::string(words[0].substr(0, name_at ? name_at - 1 : 0))};
    if (name_at == 1 || host.name.empty()) refuse(in_quotes(words[0]) + " is not a host, or USER@HOST");
    for (const Host& other : hosts) {
      if (other.name == host.name) refuse("the host " + in_quotes(host.name) + " is listed twice");
    }
    std::iota(host.slots.begin(), host.slots.end(), 0);
    hosts.push_back(std::move(host));
  }
  if (hosts.empty())
    throw InvalidArgument("the hostfile " + in_quotes(file) + " names no host; expected \"host slots=N\"");
  return hosts;
}

std::vector<Host> filter_hosts(const std::vector<Host>& hosts, std::string_view include, std::string_view exclude) {
  if (!include.empty() && !exclude.empty()) throw InvalidArgument("--include and --exclude are mutually exclusive");
  if (include.empty() && exclude.empty()) return hosts;
  const bool keep = !include.empty();
  const std::vector<std::set<int>> named =
      named_slots(hosts, keep ? include : exclude, keep ? "--include" : "--exclude");
  std::vector<Host> left;
  for (size_t i = 0; i < hosts.size(); ++i) {
    Host host{hosts[i].name, {}, hosts[i].user};
    for (const int slot : hosts[i].slots) {
      if ((named[i].count(slot) > 0) == keep) host.slots.push_back(slot);
    }
    if (!host.slots.empty()) left.push_back(std::move(host));
  }
  if (left.empty()) throw InvalidArgument("--exclude " + in_quotes(exclude) + " leaves no slot of any host");
  return left;
}

std::vector<std::string> expand_host_list(std::string_view text) {
  std::vector<std::string> names;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i == begin) throw InvalidArgument("the host list " + in_quotes(text) + " has an empty name");
      expand_part(text.substr(begin, i - begin), {}, text, names);
      begin = i + 1;
    }
  }
  return names;
}

}  // namespace anyaccel::launcher
