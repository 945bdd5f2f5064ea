#include "net/local_host.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

std::string LoopbackInterface() {
  for (const InterfaceAddress& each : InterfaceAddresses()) {
    if (each.loopback) return each.interface;
  }
  return "";
}

TEST(LocalHostTest, HasAName) {
  EXPECT_FALSE(LocalHostName().empty());
  EXPECT_EQ(LocalHostName().find(' '), std::string::npos);
}

TEST(InterfacesTest, MapsAddressesToInterfacesAndBack) {
  for (const InterfaceAddress& each : InterfaceAddresses()) {
    if (each.loopback) continue;
    EXPECT_EQ(InterfaceOfAddress(each.address), each.interface);
    EXPECT_FALSE(AddressOfInterface(each.interface)->empty());
  }
  EXPECT_EQ(InterfaceOfAddress("fe80::1%eth7"), "eth7");
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  EXPECT_EQ(InterfaceOfAddress("192.0.2.1"), "");
  EXPECT_EQ(InterfaceOfAddress("no address"), "");
  EXPECT_EQ(AddressOfInterface("no-such-if"), std::nullopt);
}

TEST(InterfacesTest, EveryLoopbackAddressIsOnTheLoopbackInterface) {
  const std::string lo = LoopbackInterface();
  ASSERT_FALSE(lo.empty());
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::ffff:127.0.0.1"})
    EXPECT_EQ(InterfaceOfAddress(address), lo) << address;
  EXPECT_EQ(AddressOfInterface(lo), "127.0.0.1");
}

TEST(InterfacesTest, RouteDeterminesTheLocalAddress) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("::ffff:127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("node0"), "") << "names must not be looked up";
  for (const InterfaceAddress& each : InterfaceAddresses())
    EXPECT_EQ(LocalAddressTowards(each.address), each.address);
}

}  // namespace
}  // namespace ddprun
