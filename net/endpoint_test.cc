#include "net/endpoint.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(EndpointTest, RoundTrips) {
  for (const char* text : {"host:1", "10.0.0.1:65535", "[fe80::1]:0"}) {
    const auto endpoint = ParseEndpoint(text, -1);
    ASSERT_TRUE(endpoint.ok()) << text << endpoint.status();
    EXPECT_EQ(ToString(*endpoint), text);
  }
  EXPECT_EQ(*ParseEndpoint("[::1]", 9), (Endpoint{"::1", 9}));
}

TEST(EndpointTest, UnspecifiedAddressesStandForAllAddresses) {
  for (const char* host : {"0.0.0.0", "0", "::"}) EXPECT_TRUE(IsUnspecifiedAddress(host)) << host;
  for (const char* host : {"0.0.0.1", "::1", "127.0.0.1", "10.0.0.0", "zero", "", "fe80::"}) {
    EXPECT_FALSE(IsUnspecifiedAddress(host)) << host;
  }
}

TEST(EndpointTest, ShortNamesDoNotCutAddresses) {
  EXPECT_EQ(ShortHostName("node1.example.org"), "node1");
  EXPECT_EQ(ShortHostName("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(ShortHostName("fd00::1.2.3.4"), "fd00::1.2.3.4");
}

}  // namespace
}  // namespace ddprun
