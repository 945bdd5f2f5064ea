#include "launcher/hosting.h"

#include <arpa/inet.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(HostingTest, RecognizesLoopback) {
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1", "0:0:0:0:0:0:0:1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"", "10.0.0.1", "128.0.0.1", "::", "fe80::1", "localhost.example", "127.0.0"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(HostingTest, ListensOnLoopbackOnlyForALoopbackHost) {
  EXPECT_EQ(ListenAddress("localhost"), "127.0.0.1");
  EXPECT_EQ(ListenAddress("127.0.0.2"), "127.0.0.2");
  EXPECT_EQ(ListenAddress("::1"), "::1");
  EXPECT_EQ(ListenAddress("10.0.0.1"), "");
  EXPECT_EQ(ListenAddress("node0"), "");
  EXPECT_EQ(ListenAddress(""), "");
}

TEST(HostingTest, RecognizesThisMachineByNameAndAddress) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  for (const std::string& host : {std::string(), std::string("localhost"), std::string("127.0.0.1"),
                                  std::string(name), AddressOfThisMachine()}) {
    EXPECT_TRUE(IsThisMachine(host)) << host;
  }
  // An address reserved for documentation (RFC 5737) and a reserved name (RFC 2606).
  EXPECT_FALSE(IsThisMachine("192.0.2.1"));
  EXPECT_FALSE(IsThisMachine("no.such.host.invalid"));
}

TEST(HostingTest, OnlyNamesNeedALookup) {
  EXPECT_EQ(IsThisMachineAtOnce("localhost"), true);
  EXPECT_EQ(IsThisMachineAtOnce(AddressOfThisMachine()), true);
  EXPECT_EQ(IsThisMachineAtOnce("192.0.2.1"), false);
  EXPECT_EQ(IsThisMachineAtOnce("no.such.host.invalid"), std::nullopt);
  for (const char* address : {"10.0.0.1", "::1", "fe80::1"})
    EXPECT_TRUE(IsNumericAddress(address)) << address;
  for (const char* name : {"localhost", "node1", ""}) EXPECT_FALSE(IsNumericAddress(name)) << name;
}

TEST(HostingTest, AddressOfThisMachineIsNumeric) {
  const std::string address = AddressOfThisMachine();
  in6_addr any;
  EXPECT_TRUE(inet_pton(AF_INET, address.c_str(), &any) == 1 ||
              inet_pton(AF_INET6, address.c_str(), &any) == 1)
      << address;
}

TEST(HostingTest, AddressesResolveAndUnknownNamesDoNot) {
  EXPECT_EQ(AddressesOf("192.0.2.1"), std::vector<std::string>{"192.0.2.1"});
  EXPECT_EQ(AddressesOf("no.such.host.invalid"), std::vector<std::string>());
}

}  // namespace
}  // namespace ddprun
