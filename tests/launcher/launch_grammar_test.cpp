// Tests of the texts that users write for the launcher: core lists, hostfiles, filters, environment files, quoted
// words.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "anyaccel/error.h"
#include "base/process/shell.h"
#include "launcher/plan/core_list.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/hosts.h"
#include "launcher/processes/node.h"

namespace anyaccel::launcher {
namespace {

using Numbers = std::vector<int>;
using Words = std::vector<std::string>;

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

::testing::AssertionResult says(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << message << "\" does not hold \"" << part << "\"";
}

TEST(CoreList, NumbersAndRanges) {
  EXPECT_EQ(parse_core_list("0,2-4,6"), (Numbers{0, 2, 3, 4, 6}));
  EXPECT_EQ(parse_core_list("3-3"), (Numbers{3}));
  EXPECT_EQ(parse_core_list("0, 2"), (Numbers{0, 2}));
  EXPECT_EQ(parse_core_list("7"), (Numbers{7}));
}

TEST(CoreList, QuotesWhatIsWrong) {
  for (const char* bad : {"", "a", "1--2", "-1", "1-", "+1", "0_1", "0,,1", "0,", "0x1", "4000000000", "1.5"}) {
    EXPECT_TRUE(says(message_of([&] { parse_core_list(bad); }), "is neither a number nor two numbers")) << bad;
  }
  EXPECT_TRUE(says(message_of([] { parse_core_list("0,5-3"); }), "\"5-3\" runs backwards"));
  for (const char* bad : {"0,0", "0-3,3-4", "4,0-1", "0-7,2"}) {
    EXPECT_TRUE(says(message_of([&] { parse_core_list(bad); }), "overlaps")) << bad;
  }
}

TEST(CoreList, FormatIsTheShortest) {
  EXPECT_EQ(format_core_list({0, 2, 4, 5, 6}), "0,2,4-6");
  EXPECT_EQ(format_core_list({}), "");
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Numbers numbers;
    for (int i = 0; i < 40; ++i) {
      if (random() % 2) numbers.push_back(i);
    }
    if (numbers.empty()) continue;
    EXPECT_EQ(parse_core_list(format_core_list(numbers)), numbers);
  }
}

TEST(Hostfile, LinesAndComments) {
  const auto hosts = parse_hostfile("# all\n\nworker-0 slots=2\n  b\tslots=03  # three\r\nA:22 slots=1", "f");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "worker-0");
  EXPECT_EQ(hosts[0].slots, (Numbers{0, 1}));
  EXPECT_EQ(hosts[1].name, "b");
  EXPECT_EQ(hosts[1].slots, (Numbers{0, 1, 2}));
  EXPECT_EQ(hosts[2].name, "A:22");
}

TEST(Hostfile, Users) {
  const auto hosts = parse_hostfile("anna@a slots=1\nb slots=1", "f");
  EXPECT_EQ(hosts[0].name + " " + hosts[0].login(), "a anna@a");
  EXPECT_EQ(hosts[1].name + " " + hosts[1].login(), "b b");
  EXPECT_EQ(filter_hosts(hosts, "a", "").at(0).login(), "anna@a");
  const auto error = [](const std::string& text) { return message_of([&] { parse_hostfile(text, "f"); }); };
  EXPECT_TRUE(says(error("anna@a slots=1\na slots=1"), "the host \"a\" is listed twice"));
  for (const char* bad : {"@a slots=1", "anna@ slots=1"}) EXPECT_TRUE(says(error(bad), "is not a host, or USER@HOST"));
}

TEST(Hostfile, QuotesLineNumberAndLine) {
  const auto error = [](const std::string& text) { return message_of([&] { parse_hostfile(text, "/job/h"); }); };
  EXPECT_TRUE(
      says(error("a slots=1\na slots=2\n"), "\"/job/h\", line 2, \"a slots=2\": the host \"a\" is listed twice"));
  EXPECT_TRUE(says(error("a slots=2 extra"), "line 1, \"a slots=2 extra\": \"extra\" follows"));
  EXPECT_TRUE(says(error("a slots=2#x"), "\"slots=2#x\" is not slots= and a number"));
  EXPECT_TRUE(says(error("\n\na slots=0"), "line 3, \"a slots=0\": a host has 1 to"));
  EXPECT_TRUE(says(error("a slots=x"), "is not slots="));
  EXPECT_TRUE(says(error("a slots=-1"), "is not slots="));
  EXPECT_TRUE(says(error("a slots = 2"), "expected \"host slots=N\""));
  EXPECT_TRUE(says(error("a"), "expected \"host slots=N\""));
  EXPECT_TRUE(says(error("a slots=99999999999"), "is not slots="));
  EXPECT_TRUE(says(error("# nothing\n"), "names no host"));
  EXPECT_TRUE(says(error(""), "names no host"));
}

std::string filtered(const std::string& include, const std::string& exclude) {
  const auto hosts = parse_hostfile("worker-0 slots=4\nworker-1 slots=2\nworker-2 slots=2", "f");
  std::string text;
  for (const Host& host : filter_hosts(hosts, include, exclude)) {
    text += host.name.substr(7) + "[" + format_core_list(host.slots) + "]";
  }
  return text;
}

TEST(Filter, WholeNodesSlotsAndUnions) {
  EXPECT_EQ(filtered("", ""), "0[0-3]1[0-1]2[0-1]");
  EXPECT_EQ(filtered("worker-0", ""), "0[0-3]");
  EXPECT_EQ(filtered("worker-1@worker-0:1,3", ""), "0[1,3]1[0-1]");  // the hostfile's order
  EXPECT_EQ(filtered("worker-0@worker-0:1", ""), "0[0-3]");
  EXPECT_EQ(filtered("worker-0:3,1,1@worker-0:0", ""), "0[0-1,3]");
  EXPECT_EQ(filtered("", "worker-1"), "0[0-3]2[0-1]");
  EXPECT_EQ(filtered("", "worker-0:0,2@worker-2:0,1"), "0[1,3]1[0-1]");
}

TEST(Filter, AddressesWithColons) {
  const auto hosts = parse_hostfile("fd77::1 slots=2\nfd77::2 slots=2\nfd77::2:1 slots=2", "f");
  const auto names = [&](const char* include) {
    std::string text;
    for (const Host& host : filter_hosts(hosts, include, ""))
      text += host.name + "[" + format_core_list(host.slots) + "]";
    return text;
  };
  EXPECT_EQ(names("fd77::2"), "fd77::2[0-1]");
  EXPECT_EQ(names("fd77::2:0@fd77::1:1"), "fd77::1[1]fd77::2[0]");
  EXPECT_EQ(names("fd77::2:1"), "fd77::2:1[0-1]");
  EXPECT_TRUE(says(message_of([&] { names("fd77::3:0"); }), " not found in hostfile"));
}

TEST(Filter, NamesWhatIsNotThere) {
  const auto error = [](const char* include, const char* exclude) {
    return message_of([&] { filtered(include, exclude); });
  };
  EXPECT_TRUE(says(error("jeff", ""), "Hostname 'jeff' not found in hostfile"));
  EXPECT_TRUE(says(error("", "worker-9:0"), "Hostname 'worker-9' not found in hostfile"));
  EXPECT_TRUE(says(error("worker-0:99", ""), "No slot '99' specified on host 'worker-0'"));
  EXPECT_TRUE(says(error("", "worker-1:2"), "No slot '2' specified on host 'worker-1'"));
  EXPECT_TRUE(says(error("worker-0:x", ""), "\"x\" in \"worker-0:x\" is not a slot's number"));
  EXPECT_TRUE(says(error("worker-0:", ""), "is not a slot's number"));
  EXPECT_TRUE(says(error("a:0:1", ""), "'a' not found"));
  EXPECT_TRUE(says(error("worker-0:0:1", ""), "is not a slot's number"));
  EXPECT_TRUE(says(error("worker-0@", ""), "names no host"));
  EXPECT_TRUE(says(error("worker-0", "worker-1"), "mutually exclusive"));
  EXPECT_TRUE(says(error("", "worker-0@worker-1@worker-2"), "leaves no slot"));
}

TEST(HostList, SlurmsShortForm) {
  EXPECT_EQ(expand_host_list("node[01-03,7],other"), (Words{"node01", "node02", "node03", "node7", "other"}));
  EXPECT_EQ(expand_host_list("r[1-2]n[8-10]"), (Words{"r1n8", "r1n9", "r1n10", "r2n8", "r2n9", "r2n10"}));
  EXPECT_EQ(expand_host_list("a"), (Words{"a"}));
  for (const char* bad : {"", "a,", "n[1-", "n[3-1]", "n[x]", "n[]", "n[1-99999999]"}) {
    EXPECT_NE(message_of([&] { expand_host_list(bad); }), "no error") << bad;
  }
}

TEST(EnvironmentFile, CommentsBlanksAndValuesAsTheyAre) {
  const Variables variables =
      parse_env_file("# comment\n\n  A=1\nB=a b \"c\" $d #e\r\nEMPTY=\nURL=http://h?x=1&y=2", "f");
  EXPECT_EQ(variables, (Variables{{"A", "1"}, {"B", "a b \"c\" $d #e"}, {"EMPTY", ""}, {"URL", "http://h?x=1&y=2"}}));
  EXPECT_TRUE(says(message_of([] { parse_env_file("A=1\nnonsense\n", "/h/.env"); }), "/h/.env, line 2: \"nonsense\""));
  // Blanks around names and values belong to neither.
  EXPECT_EQ(parse_env_file(" A = 1 \nB =\t x y \r\nC= \n", "f"), (Variables{{"A", "1"}, {"B", "x y"}, {"C", ""}}));
  EXPECT_TRUE(says(message_of([] { parse_env_file("A B=1\n", "f"); }), "\"A B=1\" is not NAME=value"));
  EXPECT_TRUE(says(message_of([] { parse_env_file("1A=1\n", "f"); }), "is not NAME=value"));
  EXPECT_TRUE(says(message_of([] { parse_env_file("=1\n", "f"); }), "is not NAME=value"));
}

TEST(Environment, ForwardsByPrefix) {
  const Variables all = {{"PYTHONPATH", "p"}, {"UCX_TLS", "tcp"}, {"UCX_NET_DEVICES", "e"},        {"OMP_X", "1"},
                         {"HOME", "/h"},      {"MV2_A", "1"},     {"ANYACCEL_JOB_TOKEN", "secret"}};
  EXPECT_EQ(
      forwarded(all, {"OMP_"}),
      (Variables{{"PYTHONPATH", "p"}, {"UCX_TLS", "tcp"}, {"UCX_NET_DEVICES", "e"}, {"OMP_X", "1"}, {"MV2_A", "1"}}));
  Variables aisc = all;
  aisc["AISC_JOB_NAME"] = "j";
  EXPECT_EQ(forwarded(aisc, {}).count("UCX_NET_DEVICES"), 0U);
}

TEST(Environment, RanksShareTheTimeThatControlGroupsAllow) {
  JobPlan job;
  job.hosts = {{"a", {0, 1}}};
  job.program = {"program"};
  Machine machine;
  for (int i = 0; i < 64; ++i) machine.cores.push_back({{i}});
  const auto threads = [&](double quota) {
    machine.quota = quota;
    return plan_ranks(job, 0, &machine, {})[1].environment["OMP_NUM_THREADS"];
  };
  EXPECT_EQ(threads(0), "32");
  EXPECT_EQ(threads(8), "4");
  EXPECT_EQ(threads(7), "3");
  EXPECT_EQ(threads(0.5), "1");
  EXPECT_EQ(threads(200), "32");
}

TEST(Environment, ThreadsFollowUnlessSmallerWereSet) {
  JobPlan job;
  job.hosts = {{"a", {0, 1}}, {"b", {2, 5, 7}}};
  job.visible_devices = {"VISIBLE"};
  job.token = "t";
  const auto threads = [&](const std::string& set) { return rank_environment(job, 0, 0, 8, set)["OMP_NUM_THREADS"]; };
  EXPECT_EQ(threads(""), "8");
  EXPECT_EQ(threads("4"), "4");
  EXPECT_EQ(threads("4,2"), "4,2");
  EXPECT_EQ(threads("16"), "8");
  EXPECT_EQ(threads("many"), "8");
  const Variables rank = rank_environment(job, 1, 2, 1, "");
  EXPECT_EQ(rank.at("RANK"), "4");
  EXPECT_EQ(rank.at("LOCAL_RANK"), "2");
  EXPECT_EQ(rank.at("LOCAL_SIZE"), "3");
  EXPECT_EQ(rank.at("WORLD_SIZE"), "5");
  EXPECT_EQ(rank.at("CROSS_RANK"), "1");
  EXPECT_EQ(rank.at("CROSS_SIZE"), "2");
  EXPECT_EQ(rank.at("VISIBLE"), "2,5,7");
  EXPECT_EQ(rank.at("ANYACCEL_JOB_TOKEN"), "t");
}

TEST(Words, SplitAsAShellDoes) {
  EXPECT_EQ(split_words("a  'b c' \"d \\\" e\" f\\ g \"\" h\"i\"'j'", "x"),
            (Words{"a", "b c", "d \" e", "f g", "", "hij"}));
  EXPECT_EQ(split_words("'$x' \"\\n\"", "x"), (Words{"$x", "\\n"}));
  EXPECT_EQ(split_words("", "x"), (Words{}));
  EXPECT_TRUE(says(message_of([] { split_words("a 'b", "--launcher_args"); }), "--launcher_args is 'a 'b'"));
  EXPECT_TRUE(says(message_of([] { split_words("a \\", "x"); }), "last backslash"));
}

TEST(Words, QuotedTextIsReadBackUnchanged) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Words words(random() % 4);
    for (std::string& word : words) {
      for (size_t i = random() % 8; i > 0; --i) word += "a '\"\\$`\n!*;&|<>("[random() % 17];
    }
    EXPECT_EQ(split_words(quote_words(words), "x"), words);
  }
}

// Whatever text comes, the answer is a result or an InvalidArgument.
TEST(Everything, SurvivesNonsense) {
  const std::string alphabet = "01379,-@:[]#= \t\nas\"'\\slots=host\x80(x)";
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random() % 24; i > 0; --i) text += alphabet[random() % alphabet.size()];
    const std::vector<Host> hosts = {{"host", {0, 1}}, {"a", {0}}};
    for (const std::function<void()>& parse : std::vector<std::function<void()>>{
             [&] { parse_core_list(text); }, [&] { parse_hostfile(text, "f"); }, [&] { expand_host_list(text); },
             [&] { filter_hosts(hosts, text, ""); }, [&] { parse_env_file(text, "f"); },
             [&] { split_words(text, "w"); }, [&] { parse_job(text, ""); }}) {
      try {
        parse();
      } catch (const InvalidArgument&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace anyaccel::launcher
