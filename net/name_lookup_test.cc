// This file replaces the C library's getaddrinfo. The replacement blocks each lookup of a name until the test
// lets the fake name server answer.

#include "net/name_lookup.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// The fake name server answers when this latch reaches zero.
std::latch* g_answer = nullptr;
std::atomic<int> g_asked{0};

}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  using Function = decltype(&getaddrinfo);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if ((hints->ai_flags & AI_NUMERICHOST) == 0) {
    ++g_asked;
    g_answer->wait();
    return real("192.0.2.7", service, hints, found);
  }
  return real(name, service, hints, found);
}

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::string Text(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
}

TimePoint In(Duration d) { return std::chrono::steady_clock::now() + d; }

TEST(NameLookupTest, NumericAddressesNeedNoNameServer) {
  g_asked = 0;
  const auto found = ResolveName("192.0.2.1", 80, In(seconds(0)));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ(Text(found->front()), "192.0.2.1:80");
  EXPECT_EQ(g_asked, 0);
}

TEST(NameLookupTest, UnresponsiveNameServerDoesNotBlockTheCaller) {
  std::latch answer(1);
  g_answer = &answer;
  g_asked = 0;
  const NameLookup lookup("node0.example", 7);
  const auto blocked = ResolveName("node0.example", 7, In(milliseconds(50)));
  EXPECT_EQ(blocked.status().code(), absl::StatusCode::kDeadlineExceeded) << blocked.status();
  EXPECT_THAT(std::string(blocked.status().message()),
              HasSubstr("node0.example does not resolve (the name server has not answered in time)"));
  pollfd ready{.fd = lookup.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  answer.count_down();
  ASSERT_EQ(poll(&ready, 1, 10'000), 1);
  const auto found = lookup.Result();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(Text(found->front()), "192.0.2.7:7");
  EXPECT_EQ(g_asked, 2);
}

}  // namespace
}  // namespace ddprun
