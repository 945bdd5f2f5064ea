// Measures the time from StartWarden until two /bin/true processes have ended, and the time until no process
// is left (medians of 100 runs). Also measures the average time that the agent needs to renew the fence.

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "launcher/process/warden_client.h"
#include "os/boot_clock.h"

namespace ddprun {
namespace {

double Millis(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

int Main() {
  constexpr int kRuns = 100;
  std::vector<double> to_end, to_nothing_left;
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int run = 0; run < kRuns; ++run) {
    const TimePoint start = std::chrono::steady_clock::now();
    int left = 2;
    {
      boost::asio::io_context io;
      WardenClient client(io, StartWarden(),
                          {.started = [](auto, auto) {},
                           .ended =
                               [&](auto, const ExitInfo& exit, const auto&) {
                                 if (!Succeeded(exit)) std::printf("%s\n", ToString(exit).c_str());
                                 --left;
                               },
                           .warden_lost = [](const auto&) {}});
      for (const WardenClient::WorkerId id : {1, 2}) {
        client.Spawn(id, {.argv = {"/bin/true"},
                          .env = {},
                          .stdin_fd = null.get(),
                          .stdout_fd = null.get(),
                          .stderr_fd = null.get()});
      }
      while (left > 0) io.run_one();
      to_end.push_back(Millis(start, std::chrono::steady_clock::now()));
    }
    to_nothing_left.push_back(Millis(start, std::chrono::steady_clock::now()));
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + kRuns / 2, values.end());
    return values[kRuns / 2];
  };
  boost::asio::io_context io;
  WardenClient client(io, StartWarden(),
                      {.started = [](auto, auto) {},
                       .ended = [](auto, const auto&, const auto&) {},
                       .warden_lost = [](const auto&) {}});
  constexpr int kRenewals = 1000;
  double renewal_us = 0;
  for (int i = 0; i < kRenewals; ++i) {
    const TimePoint start = std::chrono::steady_clock::now();
    client.Fence(BootClock::now() + std::chrono::hours(1));
    renewal_us += 1000 * Millis(start, std::chrono::steady_clock::now()) / kRenewals;
    io.restart();
    io.run_for(milliseconds(1));  // lets the warden sleep again, as it does between heartbeats
  }
  std::printf("renewing the fence: %.1f us\n", renewal_us);
  std::printf("two /bin/true: ended after %.2f ms, nothing left after %.2f ms\n", median(to_end),
              median(to_nothing_left));
  return 0;
}

}  // namespace
}  // namespace ddprun

int main() { return ddprun::Main(); }
