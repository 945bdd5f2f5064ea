#include "launcher/hosts/host_list.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto hosts = ParseHosts(text);
  EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(hosts.status().message());
}

TEST(HostListTest, NamesUsersAddressesAndSlots) {
  EXPECT_THAT(
      *ParseHosts("node1:8,node2.example.org, me@node-3:2 ,10.0.0.1,[fd00::1]:4,u@[fe80::1%eth0]"),
      ElementsAre(HostSlots{"node1", "node1", 8}, HostSlots{"node2.example.org", "node2.example.org", 0},
                  HostSlots{"me@node-3", "node-3", 2}, HostSlots{"10.0.0.1", "10.0.0.1", 0},
                  HostSlots{"fd00::1", "fd00::1", 4}, HostSlots{"u@fe80::1%eth0", "fe80::1%eth0", 0}));
  EXPECT_THAT(*ParseHosts("localhost:2"), ElementsAre(HostSlots{"localhost", "localhost", 2}));
}

TEST(HostListTest, ErrorsQuoteTheEntry) {
  const struct {
    std::string text, error;
  } kCases[] = {
      {"", "expected HOST[:SLOTS]"},
      {"a,,b", "an entry is empty"},
      {"a,", "an entry is empty"},
      {"a:0", "\"a:0\": expected a number of workers from 1 to 16384"},
      {"a:", "\"a:\": expected a number of workers"},
      {"a:-1", "expected a number of workers"},
      {"a: 1", "expected a number of workers"},
      {"a:16385", "expected a number of workers"},
      {"a:99999999999", "expected a number of workers"},
      {"a:x", "expected a number of workers"},
      {"fd00::1", "write an IPv6 address in brackets"},
      {"[fd00::1", "a ] is missing"},
      {"[node1]:8", "expected an IPv6 address in the brackets"},
      {"[fd00::1]8", "expected HOST[:SLOTS]"},
      {"-oProxyCommand=x", "expected HOST[:SLOTS]"},
      {"-x@a", "the user before @ is not valid"},
      {"@a", "the user before @ is not valid"},
      {"a b", "\"a b\": expected HOST[:SLOTS]"},
      {"a;reboot", "expected HOST[:SLOTS]"},
      {"$(x)", "expected HOST[:SLOTS]"},
      {":8", "expected HOST[:SLOTS]"},
      {"a:1,b:2,A:3", "\"A:3\": the host is given twice"},
      {"u@a,v@a", "the host is given twice"},
      {"node1,localhost", "\"localhost\": the other hosts cannot reach this address"},
      {"127.0.0.1,node1", "the other hosts cannot reach"},
      {std::string(5000, '?'), "...\": expected HOST[:SLOTS]"},
  };
  for (const auto& c : kCases) EXPECT_THAT(ErrorOf(c.text), HasSubstr(c.error)) << c.text.substr(0, 50);
  std::string many = "h0";
  for (int i = 1; i <= 1024; ++i) absl::StrAppend(&many, ",h", i);
  EXPECT_THAT(ErrorOf(many), HasSubstr("1025 hosts: expected at most 1024"));
}

}  // namespace
}  // namespace ddprun
